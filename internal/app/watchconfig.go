package app

import (
	"maps"

	"evenkeel/internal/config"
)

// Changed says which files are not as they were read.
type Changed uint8

// The values of Changed.
const (
	Unchanged     Changed = iota
	EndpointsFile         // the file of endpoints alone
	ConfigFiles           // others, and perhaps that one too
)

// Files looks at the files of a configuration, again and again. A change counts once two looks in a row see the same, so
// that a file is not read while it is being written; and a file that was read counts as known, good or bad, so that a bad
// one is tried once. It belongs to one goroutine.
type Files struct {
	known map[string]config.Sum // what was read last, or seen when reading failed
	seen  map[string]config.Look
}

// Tried notes that the configuration was read, and came to c: nil if a config file could not be read. If it is not good,
// the running one stays, and what that was read from is looked at too.
func (f *Files) Tried(c *config.Config, good bool) {
	known := map[string]config.Sum{}
	if !good {
		for name := range f.known {
			known[name] = config.LookAt(name, f.seen[name]).Sum
		}
	}
	if c != nil {
		maps.Copy(known, c.Files())
	}
	f.known = known
}

// TriedEndpoints notes that the file of endpoints alone was read, and came to c.
func (f *Files) TriedEndpoints(c *config.Config) {
	for name, sum := range c.Files() {
		if _, known := f.known[name]; !known || name == c.EndpointsFile {
			f.known[name] = sum
		}
	}
}

// Look looks at the files of c and says which have changed.
func (f *Files) Look(c *config.Config) Changed {
	seen, what, settled := make(map[string]config.Look, len(f.known)), Unchanged, true
	for name, known := range f.known {
		last, again := f.seen[name]
		now := config.LookAt(name, last)
		seen[name] = now
		switch {
		case now.Sum == known:
			continue
		case name == c.EndpointsFile:
			what = max(what, EndpointsFile)
		case c.Watch:
			what = ConfigFiles
		default:
			continue
		}
		settled = settled && again && now.Sum == last.Sum
	}
	if f.seen = seen; !settled {
		return Unchanged
	}
	return what
}
