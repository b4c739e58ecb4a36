package config

import (
	"testing"
)

// testEnv has every variable that an example reads.
func testEnv(name string) (string, bool) { return "value-of-" + name, true }

func TestExamplesLoad(t *testing.T) {
	for _, paths := range [][]string{
		{"../../examples/evenkeel.yaml"},
		{"../../examples/endpoints.yaml", "../../examples/support-agent.yaml"},
	} {
		var files []File
		for _, p := range paths {
			data, err := readFile(p)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, File{p, data})
		}
		c, warnings, err := Load(files, testEnv)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(nil); err != nil {
			t.Error(err)
		}
		for _, w := range warnings {
			t.Log(w)
		}
		t.Logf("%+v", c)
	}
}
