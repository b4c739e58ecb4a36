// Package archtest holds the architecture to its word: which internal package may import which, and what the pure core may use. It has no code for the
// binary; its test fails with the file, the line and the rule. To change the architecture, change the tables in this file, and say why in docs/decisions.
package archtest

// module is the path of Evenkeel's own module, as go.mod says it.
const module = "evenkeel"

// mayImport says for every package below internal/ (and cmd/evenkeel) which of our internal packages it may import. A package without a row fails.
// Test files are free: a test may import what it needs.
var mayImport = map[string][]string{
	"cmd/evenkeel": {"cli"},

	"archtest":      {},
	"secret":        {},
	"simd":          {},
	"quota":         {},
	"engine":        {},
	"config":        {"secret"},
	"litellm":       {"config"},
	"prefix":        {},
	"route":         {"quota", "prefix"},
	"strategy":      {"route"},
	"llm":           {"route", "secret", "simd"},
	"policy":        {"route", "config"},
	"exchange":      {"route", "policy", "quota", "llm"},
	"http1":         {},
	"upstream":      {"secret", "llm"},
	"trace":         {"exchange", "route"},
	"ledger":        {"exchange", "route", "quota", "trace"},
	"telemetry":     {"exchange", "route", "quota"},
	"cluster":       {"exchange", "route", "quota"},
	"discovery":     {"secret", "route", "llm", "upstream"},
	"health":        {"route", "llm", "upstream", "secret"},
	"proxy":         {"exchange", "route", "policy", "quota", "llm", "upstream"},
	"epp":           {"exchange", "route", "policy", "quota", "llm", "upstream"},
	"console":       {"exchange", "route", "policy", "quota", "llm", "ledger"},
	"mock":          {"engine"},
	"drill":         {"mock"},
	"sim":           {"engine", "exchange", "route", "strategy", "policy", "quota", "llm", "trace"},
	"sim/study":     {"sim", "sim/peers", "sim/yardstick", "engine", "exchange", "route", "strategy", "trace"},
	"sim/yardstick": {"sim", "engine", "route"},
	"sim/peers":     {"sim", "engine", "route"},
	"sim/report":    {"sim", "sim/study", "exchange", "route"},
	"sim/fit":       {"sim", "engine"},
	"sim/scale":     {"sim", "exchange", "route"},
	"app": {"secret", "quota", "config", "route", "strategy", "llm", "policy", "exchange", "engine", "upstream", "ledger", "telemetry", "cluster",
		"discovery", "health", "http1", "proxy", "epp", "console"},
	"cli": {"app", "sim", "sim/study", "sim/peers", "sim/report", "sim/fit", "engine", "exchange", "route", "strategy", "trace", "console", "mock", "config", "litellm", "drill"},
}

// pure lists the packages whose every result follows from their arguments: no clock, goroutine, I/O, global randomness or log. They may use each other
// freely, and of our other packages only types and constants.
var pure = []string{"route", "strategy", "quota", "policy", "exchange", "engine", "llm", "prefix", "trace", "sim", "sim/study", "sim/yardstick", "sim/peers", "sim/report", "sim/fit", "sim/scale"}

// alike lists packages that are written for each processor, which hides them from the check, and whose results follow from their
// arguments all the same: their tests say so. Pure code may call them.
var alike = []string{"simd"}

// use says which identifiers of an allowed package pure code may name. The zero value allows all. A type stands for its methods too;
// a single method is written Type.Method.
type use struct {
	only []string // nothing but these
	not  []string // all but these
}

// allowed lists what pure code may import from outside this module. Whatever is missing here is forbidden; add a package only if nothing in it asks a
// clock, starts a goroutine, does I/O, or draws on a source of randomness that the caller did not hand in.
var allowed = map[string]use{
	"bufio": {}, "bytes": {}, "cmp": {}, "container/heap": {}, "container/list": {}, "crypto/sha256": {}, "encoding": {}, "encoding/base64": {},
	"encoding/binary": {}, "encoding/hex": {}, "encoding/json": {}, "errors": {}, "hash": {}, "hash/fnv": {}, "html": {}, "io": {}, "maps": {}, "math": {},
	"math/bits": {}, "net/netip": {}, "net/url": {}, "path": {}, "regexp": {}, "slices": {}, "sort": {}, "strconv": {}, "strings": {}, "sync/atomic": {},
	"unicode": {}, "unicode/utf16": {}, "unicode/utf8": {},

	"fmt":          {not: []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}}, // the process's own stdin and stdout
	"iter":         {not: []string{"Pull", "Pull2"}},                                         // run a coroutine
	"math/rand/v2": {only: []string{"New", "NewChaCha8", "NewPCG", "NewZipf", "ChaCha8", "PCG", "Rand", "Source", "Zipf"}},
	"mime":         {only: []string{"FormatMediaType", "ParseMediaType", "ErrInvalidMediaParameter"}}, // the rest reads files
	"unsafe":       {only: []string{"Sizeof"}},
	"sync":         {only: []string{"Locker", "Mutex", "Once", "OnceFunc", "OnceValue", "OnceValues", "Pool", "RWMutex"}},
	"time": {not: []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Ticker", "Timer", "Until",
		"LoadLocation", "Local", "Time.Local"}}, // the clock, and the machine's time zone

	"github.com/cespare/xxhash/v2": {},

	"github.com/expr-lang/expr/ast": {}, "github.com/expr-lang/expr/file": {}, "github.com/expr-lang/expr/parser": {only: []string{"Parse", "Node"}},
}
