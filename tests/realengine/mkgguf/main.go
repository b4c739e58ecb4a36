// Mkgguf writes a random-weight model file for llama.cpp.
//
//	go run ./tests/realengine/mkgguf -o tiny.gguf
//	go run ./tests/realengine/mkgguf -size small -seed 7 -o small.gguf
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"evenkeel/tests/realengine/gguf"
)

func main() {
	size := flag.String("size", "tiny", "preset: tiny (0.2 M weights) or small (24 M weights)")
	seed := flag.Uint64("seed", 1, "seed of the weights; the same seed gives the same file")
	dim := flag.Int("dim", 0, "embedding size, instead of the preset's")
	layers := flag.Int("layers", 0, "blocks, instead of the preset's")
	out := flag.String("o", "", "file to write (required)")
	flag.Parse()
	if err := run(*size, *seed, *dim, *layers, *out); err != nil {
		fmt.Fprintln(os.Stderr, "mkgguf:", err)
		os.Exit(1)
	}
}

func run(size string, seed uint64, dim, layers int, out string) error {
	var model gguf.Model
	switch size {
	case "tiny":
		model = gguf.Tiny(seed)
	case "small":
		model = gguf.Small(seed)
	default:
		return fmt.Errorf("unknown -size %q: use tiny or small", size)
	}
	if dim != 0 {
		model.Dim = dim
	}
	if layers != 0 {
		model.Layers = layers
	}
	if out == "" {
		return errors.New("no file to write: use -o FILE")
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(model.Write(f), f.Close())
}
