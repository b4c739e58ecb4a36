package cli

import (
	_ "fmt"
	_ "os"
)
