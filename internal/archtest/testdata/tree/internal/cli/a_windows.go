package cli

import (
	_ "os"
	_ "syscall"
)
