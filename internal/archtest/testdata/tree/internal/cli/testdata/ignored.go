package ignored

import _ "net"
