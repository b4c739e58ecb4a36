//go:build !unix

package drill

import "errors"

func (k *link) vanish() error { return errors.New("this system cannot be made to drop connections") }
func (k *link) appear() error { return nil }
