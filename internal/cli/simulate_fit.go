package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/fit"
	"evenkeel/internal/sim/report"
)

// onlyFit reports whether nothing is to be compared: the engines are to be fitted, and no more.
func (f *simulateFlags) onlyFit() bool {
	return f.fit && len(f.strategies)+len(f.baseline)+len(f.candidate) == 0
}

// printFit fits the engines to the trace and says how well that went.
func printFit(cmd *cobra.Command, f simulateFlags) error {
	section, err := unlessOver(cmd.Context(), func() (report.Section, error) {
		w, err := f.traffic()
		if err != nil {
			return report.Section{}, err
		}
		presets, err := f.presets()
		if err != nil {
			return report.Section{}, err
		}
		return f.fitAll(w.Trace, presets)
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), section.Text)
	return err
}

// fitAll fits engines to a recorded trace, and tells how well they fit. What --engine says of an endpoint is fitted to that
// alone; of the presets for all, the one is taken that fits the others best. From then on --engine names what was fitted.
func (f *simulateFlags) fitAll(t *sim.Trace, presets map[string]engine.Config) (report.Section, error) {
	section := report.Section{Title: "Engines, fitted to the trace"}
	if t == nil || !t.IsRecorded() {
		return section, usageError{errors.New("--fit needs a trace that serve has recorded (docs/trace.md): others do not tell how long answers took")}
	}
	tried := map[string][]engine.Config{} // by endpoint, "" = all others
	for _, text := range f.engines {
		endpoint, name, ok := strings.Cut(text, "=")
		if !ok {
			endpoint, name = "", text
		}
		tried[endpoint] = append(tried[endpoint], presets[name])
	}
	if err := f.checkFitTo(tried); err != nil {
		return section, err
	}
	var engines, texts []string
	for _, endpoint := range slices.Sorted(maps.Keys(tried)) {
		result, err := calibrate(t, tried[endpoint], f.seed, func(deployment string) bool { return f.namedFor(deployment) == endpoint })
		name, head := "fitted", ""
		if endpoint != "" {
			name = "fitted to " + endpoint
			engines = append(engines, endpoint+"="+name)
			head = endpoint + "\n"
		} else {
			engines = append(engines, name)
		}
		if err != nil {
			return section, fmt.Errorf("--fit: %s%w", strings.ReplaceAll(head, "\n", ": "), err)
		}
		presets[name] = result.Engine
		if err := f.saveFit(endpoint, result); err != nil {
			return section, err
		}
		texts = append(texts, head+strings.TrimRight(result.String(), "\n")+"\n")
	}
	f.engines, section.Text = engines, strings.Join(texts, "\n")
	return section, nil
}

// fitFile returns the endpoint whose engine --fit-to writes, "" = that of all others, and the file.
func fitFile(text string) (endpoint, file string) {
	if endpoint, file, ok := strings.Cut(text, "="); ok {
		return endpoint, file
	}
	return "", text
}

// checkFitTo finds what --fit-to cannot write, before engines are fitted.
func (f *simulateFlags) checkFitTo(tried map[string][]engine.Config) error {
	for _, text := range f.fitTo {
		endpoint, file := fitFile(text)
		if _, fitted := tried[endpoint]; !fitted {
			var forms []string
			for _, e := range slices.Sorted(maps.Keys(tried)) {
				forms = append(forms, strings.TrimPrefix(e+"=FILE", "="))
			}
			return usageError{fmt.Errorf("--fit-to %s: no engine of its own is fitted to that; with this --engine write %s", text, strings.Join(forms, " or "))}
		}
		if err := writable(file); err != nil {
			return fmt.Errorf("--fit-to: %w", err)
		}
	}
	return nil
}

// saveFit writes the engine that was fitted to an endpoint where --fit-to says.
func (f *simulateFlags) saveFit(endpoint string, r *fit.Result) error {
	for _, text := range f.fitTo {
		to, file := fitFile(text)
		if to != endpoint {
			continue
		}
		about := "An engine whose times were fitted to " + strconv.Quote(f.trace)
		if endpoint != "" {
			about += ", endpoint " + strconv.Quote(endpoint)
		}
		if err := writeFile(file, func(w io.Writer) error { return writeEngine(w, r.Engine, about+":\n"+r.String()) }); err != nil {
			return fmt.Errorf("--fit-to: %w", err)
		}
	}
	return nil
}

// calibrate finds the times of the engines behind the deployments that keep names.
func calibrate(t *sim.Trace, tried []engine.Config, seed uint64, keep func(deployment string) bool) (*fit.Result, error) {
	seen, err := fit.Recorded(t, keep)
	if err != nil {
		return nil, err
	}
	return fit.Calibrate(seen, fit.Options{Engines: tried, Seed: seed})
}

// namedFor returns the endpoint or pool of a deployment if --engine names it, else "".
func (f *simulateFlags) namedFor(deployment string) string {
	endpoint, _, _ := strings.Cut(deployment, "/")
	endpoint, _, _ = strings.Cut(endpoint, "#") // of a rank
	pool, _, _ := strings.Cut(endpoint, "@")
	for _, text := range f.engines {
		if name, _, ok := strings.Cut(text, "="); ok && (name == endpoint || name == pool) {
			return name
		}
	}
	return ""
}
