//go:build linux

package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/mock"
)

var handedOver = regexp.MustCompile(`msg="handed over; what runs here finishes" to=(\d+)`)

// upgrade asks process pid, which is p or one that came of it, to hand over, and returns who took over.
func (p *program) upgrade(pid int) int {
	p.t.Helper()
	before := len(handedOver.FindAllString(p.out.text(), -1))
	if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
		p.t.Fatal(err)
	}
	var all [][]string
	p.await("another process takes over", func() bool {
		all = handedOver.FindAllStringSubmatch(p.out.text(), -1)
		return len(all) > before
	})
	next, err := strconv.Atoi(all[before][1])
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = syscall.Kill(next, syscall.SIGKILL) }) // fails if it has ended, which is fine
	return next
}

// gone waits until a process has ended.
func (p *program) gone(pid int) {
	p.t.Helper()
	p.await(fmt.Sprint("process ", pid, " has ended"), func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ") // nobody waits for it yet
	})
}

// load sends short requests, over connections that are kept, until stop is closed.
type load struct {
	work   sync.WaitGroup
	done   atomic.Int64
	mu     sync.Mutex
	failed []string
}

func (l *load) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, text)
}

// run sends requests one after another, with their length in front or in chunks.
func (l *load) run(url string, transport *http.Transport, chunked bool, stop <-chan struct{}) {
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	body := fmt.Sprintf(`{"model":"short","messages":[{"role":"user","content":%q}]}`, prompt)
	for {
		select {
		case <-stop:
			return
		default:
		}
		req, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			l.fail(err.Error())
			return
		}
		if transport.TLSClientConfig == nil {
			req.GetBody = nil // the client does not repeat anything
		}
		if chunked {
			req.ContentLength = -1
		}
		res, err := client.Do(req)
		if err != nil {
			l.fail(err.Error())
			continue
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			l.fail(fmt.Sprint(res.StatusCode, string(text), err))
		}
		l.done.Add(1)
	}
}

// longStream is a streamed answer that is read to its end in the background.
func longStream(client *http.Client, url string) error {
	body := fmt.Sprintf(`{"model":"long","stream":true,"messages":[{"role":"user","content":%q}]}`, prompt)
	res, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if http2 := strings.HasPrefix(url, "https:"); http2 != (res.ProtoMajor == 2) {
		return errors.New("over " + res.Proto)
	}
	if !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		return errors.New("cut: " + string(text[max(0, len(text)-300):]))
	}
	return nil
}

// 200 streams and a load of short requests through two hand-overs: no error, no stream cut, and the old processes end.
func TestHandOverUnderLoad(t *testing.T) {
	throughHandOvers(t, nil)
}

// The same over TLS and HTTP/2, where a connection carries many requests and is told to go. A request that crosses that
// on its way was not looked at, by the word of the protocol, and the client sends it again.
func TestHandOverUnderLoadHTTP2(t *testing.T) {
	throughHandOvers(t, &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}})
}

// throughHandOvers sends the load by transports like over, nil = plain ones.
func throughHandOvers(t *testing.T, over *http.Transport) {
	long := mockEngine(t, mock.Config{Name: "long", Models: []string{"long"}, InterToken: 20 * time.Millisecond, OutputTokens: 200})
	short := mockEngine(t, mock.Config{Name: "short", Models: []string{"short"}})
	text := fmt.Sprintf("endpoints: {long: {url: %q}, short: {url: %q}}\n", long.URL(), short.URL())
	dir := t.TempDir()
	if over != nil {
		over.TLSClientConfig.RootCAs.AddCert(selfSigned(t, dir))
		text += "tls: {cert: cert.pem, key: key.pem}\n"
	}
	p := runAs(t, func(*exec.Cmd) {}, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", write(t, filepath.Join(dir, "main.yaml"), text))
	address := regexp.MustCompile(`for=data addr=(\S+)`)
	p.await("it listens", func() bool { return address.MatchString(p.out.text()) })
	url := "http://" + address.FindStringSubmatch(p.out.text())[1]
	transport := func(fresh bool) *http.Transport { return &http.Transport{DisableKeepAlives: fresh} }
	if over != nil {
		url = "https" + strings.TrimPrefix(url, "http")
		transport = func(bool) *http.Transport { return over.Clone() }
	}
	client := &http.Client{Transport: transport(false)}

	const streams = 200
	var reading sync.WaitGroup
	cut := make(chan error, 2*streams)
	read := func(n int) {
		for range n {
			reading.Go(func() { cut <- longStream(client, url) })
		}
	}
	var l load
	stop := make(chan struct{})
	for i := range 4 {
		l.work.Go(func() { l.run(url, transport(i%2 == 0), i < 2, stop) })
	}
	read(streams)
	p.await("the streams run", func() bool { return long.Stats().Running >= streams })

	first := p.cmd.Process.Pid
	second := p.upgrade(first)
	served := l.done.Load()
	p.await("requests are served after the first hand-over", func() bool { return l.done.Load() > served+200 })
	read(50)
	third := p.upgrade(second)
	served = l.done.Load()
	p.await("requests are served after the second hand-over", func() bool { return l.done.Load() > served+200 })

	reading.Wait()
	close(stop)
	l.work.Wait()
	close(cut)
	for err := range cut {
		if err != nil {
			t.Errorf("a stream: %v", err)
		}
	}
	if len(l.failed) > 0 {
		t.Errorf("%d of %d short requests failed: %.500v", len(l.failed), l.done.Load(), l.failed)
	}
	t.Logf("%d streams and %d short requests went through", streams+50, l.done.Load())
	client.CloseIdleConnections()
	p.gone(first)
	p.gone(second)
	if err := syscall.Kill(third, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.gone(third)
}

// selfSigned writes cert.pem and key.pem for 127.0.0.1 into dir, and returns the certificate.
func selfSigned(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(90 * 24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return cert
}

// A program that cannot take over leaves the one before as it is, which says why.
func TestHandOverFails(t *testing.T) {
	e := slow(t)
	file := write(t, filepath.Join(t.TempDir(), "main.yaml"), fmt.Sprintf("endpoints: {e: {url: %q}}\n", e.URL()))
	p := serve(t, "--config", file, "--no-watch")
	s := p.stream("")
	write(t, file, "endpoints: {e: {urll: x}}\n")
	p.signal(syscall.SIGUSR2)
	p.says("not handed over; this process goes on", 1)
	p.says(`unknown key \"urll\"; did you mean \"url\"?`, 1)
	if status, _ := get(p.url + "/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d", status)
	}
	if _, err := s.reader.ReadString('\n'); err != nil {
		t.Error(err)
	}
	s.body.Close()

	write(t, file, fmt.Sprintf("endpoints: {e: {url: %q}}\n", e.URL()))
	next := p.upgrade(p.cmd.Process.Pid) // once it can, it does
	if code := p.exit0(next); code != 0 {
		t.Errorf("exit code %d of the process that handed over", code)
	}
}

// exit0 waits for the program's own process to end, whatever became of those it started, and returns its exit code.
func (p *program) exit0(next int) int {
	p.t.Helper()
	p.gone(p.cmd.Process.Pid)
	_ = syscall.Kill(next, syscall.SIGKILL) // it holds the pipe that the test waits for
	return p.exit()
}

// A stop that comes while the next process is not ready yet ends both.
func TestStopDuringHandOver(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}})
	p := serve(t, e.URL())
	e.Kill()
	p.signal(syscall.SIGUSR2)
	p.await("the next process has started", func() bool { return strings.Count(p.out.text(), "evenkeel starts") == 2 })
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 { // which also means that nobody holds its output any more
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(p.out.text(), "not handed over; this process goes on") {
		t.Error("nothing is said of the hand-over")
	}
}

// An address that is another one by now is opened by the new process; a stream at the old one finishes.
func TestHandOverToAnotherAddress(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}, InterToken: 20 * time.Millisecond, OutputTokens: 60})
	file := filepath.Join(t.TempDir(), "main.yaml")
	text := fmt.Sprintf("endpoints: {e: {url: %q}}\n", e.URL())
	write(t, file, text+"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n")
	p := runAs(t, func(*exec.Cmd) {}, "serve", "--config", file, "--no-watch")
	p.await("it listens", func() bool {
		for _, m := range listening.FindAllStringSubmatch(p.out.text(), -1) {
			if m[1] == "data" {
				p.url = "http://" + m[2]
			}
		}
		return p.url != ""
	})
	s := p.stream("")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	write(t, file, text+"admin: 127.0.0.1:0\nlisten: "+address+"\n")
	next := p.upgrade(p.cmd.Process.Pid)
	if status, _ := get("http://" + address + "/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d", status)
	}
	if text := s.rest(); !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("the stream did not finish: %q", text[max(0, len(text)-400):])
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://")); err == nil {
		c.Close()
		t.Error("the old address still takes connections")
	}
	p.exit0(next)
}

// The service manager learns that the process is ready, and which one is the main one now.
func TestServiceManagerIsTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	told := make(chan string, 100)
	go func() { // ends with l
		b := make([]byte, 1000)
		for {
			n, _, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			told <- string(b[:n])
		}
	}()
	says := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			select {
			case got := <-told:
				if got == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the service manager was not told %s", want)
			}
		}
	}
	e := slow(t)
	t.Setenv("NOTIFY_SOCKET", socket)
	p := serve(t, e.URL())
	says("READY=1")
	next := p.upgrade(p.cmd.Process.Pid)
	says(fmt.Sprintf("MAINPID=%d", next))
	if err := syscall.Kill(next, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	says("STOPPING=1")
	p.exit0(next)
}
