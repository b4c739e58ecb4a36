//go:build !race

package router

import _ "evenkeel/internal/cli" // what the program is made of: else go test takes results of an older one from its cache
