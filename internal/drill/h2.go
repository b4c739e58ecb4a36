package drill

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
)

// certificate makes a self-signed certificate for a name, and returns it with the path of its authority's file.
func (b *Bench) certificate(name string, until time.Time) (tls.Certificate, string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	b.must(err)
	path := filepath.Join(b.folder(), "ca-"+name+".pem")
	b.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

// h2Server is an engine that speaks HTTP/2 frame by frame, so that it can go away and refuse streams.
type h2Server struct {
	name string
	l    net.Listener

	refuse    int64         // every n-th request is refused, once; 0 = none
	goAway    int64         // after so many requests of a connection it goes away; 0 = never
	delay     time.Duration // of each answer
	requests  atomic.Int64
	refused   atomic.Int64
	goneAway  atomic.Int64 // connections
	forgotten atomic.Int64 // requests that came after it had said so
	open      atomic.Int64
	whole     atomic.Int64
	seen      sync.Map // bodies of requests
}

// h2 starts one and puts it into the configuration.
func (b *Bench) h2(name string, s *h2Server) *h2Server {
	pair, ca := b.certificate("127.0.0.1", time.Now().Add(time.Hour))
	s.name = name
	s.l = tls.NewListener(b.listen(), &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	b.h2s = append(b.h2s, s)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			nc, err := s.l.Accept()
			if err != nil {
				return // closed with the row
			}
			s.open.Add(1)
			running.Go(func() {
				defer s.open.Add(-1)
				defer nc.Close()
				s.serve(nc) // ends when the balancer does, at the latest
			})
		}
	})
	b.later(func() {
		s.l.Close()
		running.Wait()
	})
	b.serveBy(name, "https://"+s.l.Addr().String(), settings{"tls": settings{"ca": ca}})
	return s
}

// h2Conn is one connection.
type h2Conn struct {
	s       *h2Server
	nc      net.Conn
	mu      sync.Mutex   // guards writing
	head    bytes.Buffer // of an answer, encoded; guarded by mu
	encoder *hpack.Encoder
	decoder *hpack.Decoder
	post    map[uint32]bool   // streams that are one
	bodies  map[uint32][]byte // of streams, so far
	pending sync.WaitGroup
	posts   int64
	last    uint32 // the last stream that is served, once it goes away
	away    bool
}

// Frame types, flags and error codes of RFC 9113 §6 and §7.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameWindow = 0, 1, 3, 4, 6, 7, 8

	flagAck, flagEndStream, flagEndHeaders = 1, 1, 4

	codeNone, codeRefused = 0, 7

	prefaceText = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// frame writes one; callers hold mu.
func (c *h2Conn) frame(kind, flags byte, stream uint32, payload []byte) error {
	text := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	text = binary.BigEndian.AppendUint32(text, stream)
	_, err := c.nc.Write(append(text, payload...))
	return err
}

// send writes a frame. A connection that broke shows when it is read.
func (c *h2Conn) send(kind, flags byte, stream uint32, payload ...uint32) {
	var text []byte
	for _, p := range payload {
		text = binary.BigEndian.AppendUint32(text, p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.frame(kind, flags, stream, text)
}

func (s *h2Server) serve(nc net.Conn) {
	c := &h2Conn{s: s, nc: nc, post: map[uint32]bool{}, bodies: map[uint32][]byte{}, decoder: hpack.NewDecoder(4096, nil)}
	c.encoder = hpack.NewEncoder(&c.head)
	defer c.pending.Wait()
	preface := make([]byte, len(prefaceText))
	if _, err := io.ReadFull(nc, preface); err != nil {
		return
	}
	c.send(frameSettings, 0, 0)
	head := make([]byte, 9)
	for {
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(nc, payload); err != nil {
			return
		}
		if c.take(head[3], head[4], binary.BigEndian.Uint32(head[5:])&(1<<31-1), payload) != nil {
			return
		}
	}
}

// take handles one frame. Clients here send heads in one frame, without padding.
func (c *h2Conn) take(kind, flags byte, stream uint32, payload []byte) error {
	switch kind {
	case frameSettings:
		if flags&flagAck == 0 {
			c.send(frameSettings, flagAck, 0)
		}
	case framePing:
		if flags&flagAck == 0 {
			c.send(framePing, flagAck, 0, binary.BigEndian.Uint32(payload), binary.BigEndian.Uint32(payload[4:]))
		}
	case frameHeaders:
		if flags&0x20 != 0 { // a priority comes first
			payload = payload[5:]
		}
		fields, err := c.decoder.DecodeFull(payload)
		if err != nil {
			return err
		}
		for _, f := range fields {
			c.post[stream] = c.post[stream] || f.Name == ":method" && f.Value == "POST"
		}
	case frameData:
		c.bodies[stream] = append(c.bodies[stream], payload...)
		if n := uint32(len(payload)); n > 0 {
			c.send(frameWindow, 0, 0, n)
		}
	default:
		return nil
	}
	if (kind == frameHeaders || kind == frameData) && flags&flagEndStream != 0 {
		c.asked(stream, c.post[stream], string(c.bodies[stream]))
		delete(c.post, stream)
		delete(c.bodies, stream)
	}
	return nil
}

// asked takes a request that has arrived whole.
func (c *h2Conn) asked(stream uint32, post bool, body string) {
	if c.away && stream > c.last {
		c.s.forgotten.Add(1)
		return
	}
	if !post {
		c.answer(stream, `{"object":"list","data":[{"id":"`+model+`","object":"model","created":1,"owned_by":"drill"}]}`, false)
		return
	}
	n := c.s.requests.Add(1)
	if _, again := c.s.seen.LoadOrStore(body, true); c.s.refuse > 0 && n%c.s.refuse == 0 && !again {
		c.s.refused.Add(1)
		c.send(frameReset, 0, stream, codeRefused)
		return
	}
	if c.posts++; c.s.goAway > 0 && c.posts == c.s.goAway && !c.away {
		c.away, c.last = true, stream-2 // this one is not served any more
		c.s.goneAway.Add(1)
		c.s.forgotten.Add(1)
		c.send(frameGoAway, 0, 0, c.last, codeNone)
		go func() { // ends with the answers that are under way
			c.pending.Wait()
			time.Sleep(50 * time.Millisecond) // so that the last bytes are read before the end
			c.nc.Close()
		}()
		return
	}
	c.pending.Add(1)
	time.AfterFunc(c.s.delay, func() {
		defer c.pending.Done()
		c.answer(stream, chatAnswer, true)
	})
}

func (c *h2Conn) answer(stream uint32, body string, counts bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head.Reset()
	for _, h := range [][2]string{{":status", "200"}, {"content-type", "application/json"}} {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // into memory
	}
	err := c.frame(frameHeaders, flagEndHeaders, stream, c.head.Bytes())
	if err == nil && c.frame(frameData, flagEndStream, stream, []byte(body)) == nil && counts {
		c.s.whole.Add(1)
	}
}
