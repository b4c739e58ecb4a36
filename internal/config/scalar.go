package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"evenkeel/internal/secret"
)

// Size is a number of bytes. Files write 32MiB, 10MB, 512KiB or a plain number.
type Size int64

// sizeUnits are tried in this order, so that "B" comes last.
var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"b", 1},
}

// String writes the size with the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name  string
		bytes Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s != 0 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// What is wrong with a value: its form, or that it is too much of what it says.
var errForm, errTooLarge = errors.New("another form"), errors.New("too large")

func parseSize(text string) (Size, error) {
	number, factor := strings.ToLower(text), 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := parseNumber(number)
	n *= factor
	switch {
	case err != nil:
		return 0, err
	case n > math.MaxInt64/2:
		return 0, errTooLarge
	case n < 0 || n != math.Trunc(n):
		return 0, errForm
	}
	return Size(n), nil
}

// parseNumber reads a finite decimal number; hexadecimal and "inf" are not numbers here.
func parseNumber(text string) (float64, error) {
	if strings.Trim(text, "0123456789.eE+-") != "" {
		return 0, errForm
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, numberError(err)
}

// numberError gives what package strconv found wrong as one of ours.
func numberError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, strconv.ErrRange):
		return errTooLarge
	}
	return errForm
}

// longestDuration is the most that a setting takes: a year, far below what time.Duration holds.
const longestDuration = 365 * 24 * time.Hour

// parseDuration reads 15s, 1m30s or 800ms, and under a key that ends in _seconds or _ms a plain number of those.
func parseDuration(key, text string) (time.Duration, error) {
	unit := time.Duration(0)
	switch {
	case strings.HasSuffix(key, "_seconds"):
		unit = time.Second
	case strings.HasSuffix(key, "_ms"):
		unit = time.Millisecond
	default:
		d, err := time.ParseDuration(text)
		if err != nil { // it does not say why: if short numbers are right in its place, those were too large
			if _, err = time.ParseDuration(digits.ReplaceAllString(text, "1")); err != nil {
				return 0, errForm
			}
			return 0, errTooLarge
		}
		if d.Abs() > longestDuration {
			return 0, errTooLarge
		}
		return d, nil
	}
	n, err := parseNumber(text)
	if n *= float64(unit); err == nil && math.Abs(n) > float64(longestDuration) {
		err = errTooLarge
	}
	if err != nil {
		return 0, err
	}
	return time.Duration(n), nil
}

var digits = regexp.MustCompile("[0-9]+")

// scalar decodes text, numbers, switches, durations, sizes and secrets.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, f field, at *path) {
	if v.Type() == typeSecret {
		d.secret(n, v.Addr().Interface().(*secret.String), at)
		return
	}
	form, example := expected(v, f)
	if n.Kind != yaml.ScalarNode {
		d.fail(n, at, "must be %s%s, is %s", form, example, describe(n))
		return
	}
	text, err := n.Value, error(nil)
	switch {
	case f.url:
		d.url(n, v, at)
		return
	case f.proxy:
		d.proxy(n, v, at)
		return
	case f.file:
		d.filePath(n, v, at)
		return
	case v.Type() == typeDuration:
		var got time.Duration
		if got, err = parseDuration(f.written, text); err == nil {
			v.SetInt(int64(got))
		}
	case v.Type() == typeSize:
		var got Size
		if got, err = parseSize(text); err == nil {
			v.SetInt(int64(got))
		}
	default:
		err = setPlain(v, text)
	}
	switch {
	case err == nil:
	case errors.Is(err, errTooLarge) && v.Type() == typeDuration:
		d.fail(n, at, "%s is too large; the most is a year, %dh", show(text), longestDuration/time.Hour)
	case errors.Is(err, errTooLarge):
		d.fail(n, at, "%s is too large", show(text))
	default:
		hint := ""
		if strings.Contains(text, "${") {
			hint = "; environment variables are read in url and api_key only"
		}
		d.fail(n, at, "must be %s%s, is %s%s", form, example, show(text), hint)
	}
}

func setPlain(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return errForm
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil && v.OverflowInt(n) {
			err = strconv.ErrRange
		}
		if err != nil {
			return numberError(err)
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := parseNumber(text)
		if err != nil {
			return err
		}
		v.SetFloat(n)
	default:
		panic(fmt.Sprintf("BUG: config cannot decode into %s", v.Type()))
	}
	return nil
}

// expected says in words what a setting takes, with an example.
func expected(v reflect.Value, f field) (form, example string) {
	switch {
	case v.Type() == typeDuration && strings.HasSuffix(f.written, "_seconds"):
		return "a number of seconds", " such as 15"
	case v.Type() == typeDuration && strings.HasSuffix(f.written, "_ms"):
		return "a number of milliseconds", " such as 800"
	case v.Type() == typeDuration:
		return "a duration with its unit", " such as 15s or 800ms"
	case v.Type() == typeSize:
		return "a size", " such as 32MiB or 1048576"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false", ""
	case reflect.Int, reflect.Int64:
		if strings.HasSuffix(f.written, "_mib") {
			return "a whole number of MiB", " such as 64"
		}
		return "a whole number", " such as 200"
	case reflect.Float64:
		return "a number", " such as 0.5"
	default:
		return "text", ""
	}
}

// plain gives a scalar as its YAML type: bool, int, float64, nil or string.
func plain(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true"
	case "!!int":
		if i, err := strconv.Atoi(n.Value); err == nil {
			return i
		}
	case "!!float":
		if x, err := parseNumber(n.Value); err == nil {
			return x
		}
	}
	return n.Value
}
