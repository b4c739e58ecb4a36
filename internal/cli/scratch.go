package cli

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// scratch is a temporary file that is made when it is written to. The system removes it with the process, even if that is killed;
// where a file that is open cannot be removed it is left among the other temporary ones.
type scratch struct {
	once sync.Once
	file *os.File
	err  error
}

// WriteAt implements io.WriterAt.
func (s *scratch) WriteAt(p []byte, off int64) (int, error) {
	s.once.Do(func() {
		if s.file, s.err = os.CreateTemp("", "evenkeel-trace-*"); s.err == nil {
			_ = os.Remove(s.file.Name()) // it lives on until it is closed
		}
	})
	if s.err != nil {
		return 0, s.hint(s.err)
	}
	n, err := s.file.WriteAt(p, off)
	return n, s.hint(err)
}

// hint says what helps where there is no room.
func (s *scratch) hint(err error) error {
	if err == nil {
		return err
	}
	return fmt.Errorf("%w (TMPDIR names the folder of temporary files)", err)
}

// ReadAt implements io.ReaderAt.
func (s *scratch) ReadAt(p []byte, off int64) (int, error) {
	if s.file == nil {
		return 0, fs.ErrInvalid
	}
	return s.file.ReadAt(p, off)
}
