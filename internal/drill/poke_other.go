//go:build !(linux && amd64)

package drill

import (
	"errors"
	"time"
)

var errNoPoke = errors.New("this fault can be made on Linux on amd64 only")

func (x *balancer) shiftClock(time.Duration) (func() error, error) { return nil, errNoPoke }
func (x *balancer) plant(string) (func() error, error)             { return nil, errNoPoke }
