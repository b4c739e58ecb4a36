package main

import _ "evenkeel/internal/cli"
