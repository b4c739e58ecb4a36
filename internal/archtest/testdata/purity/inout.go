package fixture

import (
	_ "embed" // want import of embed
	"errors"
	"fmt"
	f "fmt"
	"io"
	"log"        // want import of log
	. "log/slog" // want import of log/slog
	"mime"
	"net"     // want import of net
	"os"      // want import of os
	"runtime" // want import of runtime
	"unsafe"

	"evenkeel/internal/config"
)

func hidden() // want function hidden has no body

func talk(w io.Writer, now config.Clock) error {
	fmt.Fprintln(w, now.Start, now.Add(config.Limit))
	fmt.Println("x")              // want fmt.Println
	f.Printf("x")                 // want fmt.Printf
	println("x")                  // want println
	log.Print("x")                // want log.Print
	Info("x")                     // want log/slog.Info
	_ = mime.TypeByExtension("x") // want mime.TypeByExtension
	_, _, _ = mime.ParseMediaType("x")
	_, _ = net.Dial("tcp", "x") // want net.Dial
	file, _ := os.Open("x")     // want os.Open
	file.Close()                // want os.File.Close
	runtime.Gosched()           // want runtime.Gosched
	_ = unsafe.Sizeof(w)
	_ = unsafe.Pointer(nil) // want unsafe.Pointer
	_ = config.New()        // want evenkeel/internal/config.New
	_ = config.Now()        // want evenkeel/internal/config.Now
	return errors.New(fmt.Sprint("x"))
}
