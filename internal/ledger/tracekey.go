package ledger

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"

	"evenkeel/internal/trace"
)

// TraceKey is the secret of a trace's hashes: who lacks it cannot find out from a trace whether a text that he thinks of was asked.
// Traces that were written with one key can be compared, whichever process wrote them.
//
// A chain's hashes are no secret function of the text, they are only hard to make collide (llm.PrefixKey). So what is written is an
// HMAC of them. Use by one goroutine.
type TraceKey struct {
	secret           [32]byte
	blocks, sessions hash.Hash
	sum              []byte
	name             string
}

// NewTraceKey returns a key that nobody else has.
func NewTraceKey() TraceKey {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails (crypto/rand)
	return traceKey(secret)
}

func traceKey(secret [32]byte) TraceKey {
	k := TraceKey{secret: secret}
	k.blocks, k.sessions = hmac.New(sha256.New, k.derive("blocks")), hmac.New(sha256.New, k.derive("sessions"))
	k.name = hex.EncodeToString(k.derive("name")[:4])
	return k
}

// derive returns a secret for one purpose.
func (k *TraceKey) derive(purpose string) []byte {
	h := hmac.New(sha256.New, k.secret[:])
	h.Write([]byte("evenkeel trace " + purpose))
	return h.Sum(nil)
}

// Prefixes returns the secret that prompts are to be hashed with.
func (k *TraceKey) Prefixes() [32]byte { return [32]byte(k.derive("prefixes")) }

// Name returns what stands for the key in the headers of traces. It tells nothing of the secret.
func (k *TraceKey) Name() string { return k.name }

// block returns what is written of a hash in a chain.
func (k *TraceKey) block(h uint64) uint64 {
	k.blocks.Reset()
	k.sum = binary.BigEndian.AppendUint64(k.sum[:0], h)
	k.blocks.Write(k.sum)
	return k.take(k.blocks)
}

// session returns what is written of a tenant's name for a session, 0 for "".
func (k *TraceKey) session(tenant, session string) uint64 {
	if session == "" {
		return 0
	}
	k.sessions.Reset()
	k.sum = binary.BigEndian.AppendUint64(k.sum[:0], uint64(len(tenant)))
	k.sum = append(append(k.sum, tenant...), session...)
	k.sessions.Write(k.sum)
	return max(k.take(k.sessions), 1)
}

func (k *TraceKey) take(h hash.Hash) uint64 {
	k.sum = h.Sum(k.sum[:0])
	return binary.BigEndian.Uint64(k.sum) >> (64 - trace.HashBits)
}

// OpenTraceKey returns the key that is kept in a file, 64 hexadecimal digits. If there is none, it makes one that only its owner
// may read. Processes that start at one time get the same.
func OpenTraceKey(path string) (TraceKey, error) {
	k, err := ReadTraceKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	k = NewTraceKey()
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*") // with mode 0600
	if err != nil {
		return TraceKey{}, err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(k.secret[:]) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return TraceKey{}, err
	}
	if err := os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) { // another process was faster
		return ReadTraceKey(path)
	} else if err != nil {
		if err := os.Rename(f.Name(), path); err != nil { // a file system without links
			return TraceKey{}, err
		}
	}
	return k, nil
}

// ReadTraceKey is OpenTraceKey where there must be a file.
func ReadTraceKey(path string) (TraceKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return TraceKey{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > 1024 {
		return TraceKey{}, fmt.Errorf("%s is not a file of 64 hexadecimal digits; move it away, and a new key is made", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return TraceKey{}, err
	}
	var secret [32]byte
	text = bytes.TrimSpace(text)
	if len(text) != hex.EncodedLen(len(secret)) {
		return TraceKey{}, fmt.Errorf("%s holds %d characters, expected 64 hexadecimal digits; move it away, and a new key is made", path, len(text))
	}
	if _, err := hex.Decode(secret[:], text); err != nil {
		return TraceKey{}, fmt.Errorf("%s does not hold 64 hexadecimal digits; move it away, and a new key is made", path)
	}
	return traceKey(secret), nil
}
