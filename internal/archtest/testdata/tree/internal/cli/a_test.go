package cli

import _ "testing"
