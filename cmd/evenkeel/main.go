// Command evenkeel is the load balancer for LLM inference.
package main

import (
	"os"

	"evenkeel/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
