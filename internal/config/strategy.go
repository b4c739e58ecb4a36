package config

import (
	"errors"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v4"
)

// Strategy names how deployments are ranked. Files write `strategy: predicted_wait`, or with options
// `strategy: {name: p2c_ewma, half_life: 10s}`.
type Strategy struct {
	Name string
	// Options are all keys but name, as YAML gives them; nil if there are none. Read them through Decode.
	Options map[string]any
}

// Decode writes the options over the struct that into points at, which holds the defaults. The keys are the yaml tags of
// the fields, else their names in snake_case; a time.Duration is written 10s, or under half_life_seconds or half_life_ms
// as a number. An unknown key or a wrong value is an error of type Problems, whose paths start at the strategy.
func (s Strategy) Decode(into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("BUG: Strategy.Decode into %T, want a pointer to a struct", into)
	}
	if len(s.Options) == 0 {
		return nil
	}
	var n yaml.Node
	if err := n.Encode(s.Options); err != nil {
		return fmt.Errorf("options of strategy %s: %w", s.Name, err)
	}
	d := newDecoder(sources{})
	d.structure(&n, target.Elem(), nil, 0)
	for i := range d.problems { // the nodes are ours: they have no place in a file
		d.problems[i].Line, d.problems[i].Column = 0, 0
	}
	return d.err()
}

func (d *decoder) strategy(n *yaml.Node, s *Strategy, at *path, depth int) {
	if n.Kind == yaml.ScalarNode {
		*s = Strategy{Name: n.Value}
		return
	}
	options, ok := d.tree(n, at, depth).(map[string]any)
	if !ok {
		d.fail(n, at, "must be a name, or a map with name and options, is %s", describe(n))
		return
	}
	name, ok := options["name"].(string)
	if !ok {
		d.fail(n, at, "needs a name: {name: predicted_wait, ...}")
		return
	}
	for _, e := range d.entries(n, at, depth) {
		d.places[at.key(e.name).String()] = d.at(e.key) // where Validate points at
	}
	delete(options, "name")
	if len(options) == 0 {
		options = nil
	}
	*s = Strategy{Name: name, Options: options}
}

// strategy lets check judge s and places what it finds.
func (v *validator) strategy(s Strategy, at *path, check func(Strategy) error) {
	if v.broken.has(at.String()) {
		return // one mistake gives one message
	}
	if s.Name == "" {
		v.fail(at, "has no name; remove it or write one such as predicted_wait")
		return
	}
	if check == nil {
		return
	}
	err := check(s)
	var inner Problems
	switch {
	case err == nil:
	case errors.As(err, &inner):
		for _, p := range inner {
			v.fail(at.below(p.at), "%s", p.Text)
		}
	default:
		v.fail(at, "%s", err)
	}
}
