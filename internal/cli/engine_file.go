package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"evenkeel/internal/config"
	"evenkeel/internal/engine"
	"evenkeel/internal/sim/report"
)

// mostEngineFile bounds the file of an engine, in bytes: it has some twenty lines.
const mostEngineFile = 1 << 20

// engineField is a member of the file of an engine.
type engineField struct {
	name, says string
	field      string // of engine.Config, as its errors name it
	value      any    // *engine.Scheduler, *int, *float64 or *time.Duration
	most       int    // of an *int
}

// engineFields lists the members in the order in which they are written.
func engineFields(c *engine.Config) []engineField {
	t := &c.Timing
	return []engineField{
		{"scheduler", "how steps are composed: " + strings.Join(schedulers(), ", "), "Scheduler", &c.Scheduler, 0},
		{"step_tokens", "most tokens of a step", "StepTokens", &c.StepTokens, 1 << 24},
		{"micro_batch", "tokens that one pass of slots computes", "MicroBatch", &c.MicroBatch, 1 << 24},
		{"max_sequences", "most requests that run at once", "MaxSequences", &c.MaxSequences, 1 << 20},
		{"slots", "slots of slots", "Slots", &c.Slots, 1 << 16},
		{"block_tokens", "tokens of a block of the KV cache", "BlockTokens", &c.BlockTokens, 1 << 16},
		{"blocks", "blocks of the KV cache", "Blocks", &c.Blocks, 1 << 30},
		{"watermark", "share of the blocks that is kept free when a request is let in", "Watermark", &c.Watermark, 0},
		{"load", "how long the model loads before the first step", "Load", &c.Load, 0},
		{"warm_up_steps", "first steps that take longer", "WarmUpSteps", &c.WarmUpSteps, 1 << 30},
		{"warm_up_factor", "so many times as long", "WarmUpFactor", &c.WarmUpFactor, 0},
		{"timing.base", "of a step", "Timing.Base", &t.Base, 0},
		{"timing.prefill", "of a step that computes prompts, beside it", "Timing.Prefill", &t.Prefill, 0},
		{"timing.token", "of a token of a prompt", "Timing.Token", &t.Token, 0},
		{"timing.pair", "attention: n tokens after m others take 2·pair·n·(m + n/2)", "Timing.Pair", &t.Pair, 0},
		{"timing.sequence", "of a request that decodes", "Timing.Sequence", &t.Sequence, 0},
		{"timing.context", "of a token of their contexts", "Timing.Context", &t.Context, 0},
	}
}

func schedulers() (names []string) {
	for s := engine.Mixed; s <= engine.Legacy; s++ {
		names = append(names, s.String())
	}
	return names
}

const timingPrefix = "timing."

// writeEngine writes the file of an engine; about says in its first lines where it comes from. Timing.Decode cannot be written.
func writeEngine(w io.Writer, c engine.Config, about string) error {
	var b bytes.Buffer
	for line := range strings.Lines(about) {
		b.WriteString("# " + report.Printable(strings.TrimRight(line, " \n")) + "\n")
	}
	b.WriteString("# For --engine of evenkeel simulate and evenkeel mock.\n")
	inTiming := false
	for _, f := range engineFields(&c) {
		text := ""
		switch v := f.value.(type) {
		case *engine.Scheduler:
			text = v.String()
		case *int:
			text = strconv.Itoa(*v)
		case *float64:
			text = strconv.FormatFloat(*v, 'g', -1, 64)
		case *time.Duration:
			text = v.String()
		}
		name, isTiming := strings.CutPrefix(f.name, timingPrefix)
		switch {
		case isTiming && !inTiming:
			inTiming = true
			b.WriteString("timing: # in seconds\n")
		case !isTiming && (text == "0" || text == "0s"): // it has none of these
			continue
		}
		if isTiming {
			name = "  " + name
		}
		fmt.Fprintf(&b, "%-34s # %s\n", name+": "+text, f.says)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// engineNamed returns the engine that --engine names: a preset, or a file.
func engineNamed(name string) (engine.Config, error) {
	if c, err := engine.Preset(name); err == nil {
		return c, nil
	}
	if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" && !strings.ContainsAny(name, `/\`) {
		return engine.Config{}, usageError{fmt.Errorf("--engine: there is no preset %q; there are %s; the name of a file ends in .yaml or holds a /", name, strings.Join(engine.Presets(), ", "))}
	}
	file, err := os.Open(name)
	if err != nil {
		return engine.Config{}, fmt.Errorf("--engine: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostEngineFile+1))
	if err != nil {
		return engine.Config{}, fmt.Errorf("--engine: %w", err)
	}
	c, err := parseEngine(text)
	if err != nil {
		return engine.Config{}, fmt.Errorf("--engine: %s%w", name, err)
	}
	return c, nil
}

// parseEngine reads the file of an engine. Errors begin with the line, as in ":3: ", or with ": ".
func parseEngine(text []byte) (c engine.Config, err error) {
	if len(text) > mostEngineFile {
		return c, fmt.Errorf(": is larger than %d MiB; expected an engine, as simulate --fit-to writes it", mostEngineFile>>20)
	}
	var root yaml.Node
	if err := yaml.Load(text, &root); err != nil && len(bytes.TrimSpace(text)) > 0 {
		if bad, ok := errors.AsType[*yaml.LoadError](err); ok && bad.Mark.Line > 0 {
			return c, fmt.Errorf(":%d: it is not YAML: %s", bad.Mark.Line, bad.Message)
		}
		return c, fmt.Errorf(": it is not YAML: %w", err)
	}
	fields := map[string]engineField{}
	var names []string
	for _, f := range engineFields(&c) {
		fields[f.name], names = f, append(names, f.name)
	}
	if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return c, errors.New(": expected an engine, as simulate --fit-to writes it, with scheduler, blocks, timing and more")
	}
	given := map[string]bool{}
	if err := readEngine(root.Content[0], "", fields, names, given); err != nil {
		return c, err
	}
	for _, f := range []string{"scheduler", "timing.base"} { // an error that 0 is too little would not say that it is missing
		if !given[f] {
			return c, fmt.Errorf(": %s is missing: %s", f, fields[f].says)
		}
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf(": %s", inFile(err.Error(), fields))
	}
	return c, nil
}

// readEngine reads the members of a mapping.
func readEngine(n *yaml.Node, prefix string, fields map[string]engineField, names []string, given map[string]bool) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := prefix + key.Value
		if name+"." == timingPrefix {
			if value.Kind != yaml.MappingNode {
				return fmt.Errorf(":%d: timing: expected base, prefill, token, pair, sequence and context, each with its seconds", value.Line)
			}
			if err := readEngine(value, timingPrefix, fields, names, given); err != nil {
				return err
			}
			continue
		}
		f, known := fields[name]
		switch {
		case key.Kind != yaml.ScalarNode || !known:
			return fmt.Errorf(":%d: unknown key %.40q%s", key.Line, name, config.DidYouMean(name, names))
		case given[name]:
			return fmt.Errorf(":%d: %s is there twice", key.Line, name)
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf(":%d: %s: expected one value: %s", value.Line, name, f.says)
		}
		given[name] = true
		if err := f.read(value.Value); err != nil {
			return fmt.Errorf(":%d: %s is %.40q, expected %w", value.Line, name, value.Value, err)
		}
	}
	return nil
}

// read sets the value; the error says what was expected.
func (f *engineField) read(text string) error {
	switch v := f.value.(type) {
	case *engine.Scheduler:
		for s := engine.Mixed; s <= engine.Legacy; s++ {
			if s.String() == text {
				*v = s
				return nil
			}
		}
		return errors.New("one of " + strings.Join(schedulers(), ", "))
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > f.most {
			return fmt.Errorf("a whole number from 0 to %d", f.most)
		}
		*v = n
	case *float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0) || math.IsInf(x, 1) {
			return errors.New("a number such as 0.006, not negative")
		}
		*v = x
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return errors.New("a duration with its unit such as 15s, not negative")
		}
		*v = d
	}
	return nil
}

// inFile words what is wrong with an engine with the names of its file.
func inFile(text string, fields map[string]engineField) string {
	var pairs []string
	for _, f := range fields {
		pairs = append(pairs, f.field+" ", f.name+" ")
	}
	return strings.NewReplacer(append(pairs, "engine: ", "", "\n", "; ")...).Replace(text)
}
