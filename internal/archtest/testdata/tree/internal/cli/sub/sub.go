package sub

import "C"
