// Package gguf writes model files that a real llama.cpp loads: llama
// architecture, random weights, a small vocabulary made by hand. The text such
// a model produces means nothing; the time it takes, its caches, its framing
// and its errors are those of the real engine, and nothing has to be
// downloaded.
package gguf

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
)

// The GGUF container, version 3: header, metadata, tensor directory, then the
// tensors' data, each aligned. All numbers are little-endian.
// Source: docs/gguf.md of the ggml project.
const (
	magic     = 0x46554747 // "GGUF"
	version   = 3
	alignment = 32 // bytes; the format's default
)

// valueType numbers the types of metadata values.
type valueType uint32

const (
	typeUint32  valueType = 4
	typeInt32   valueType = 5
	typeFloat32 valueType = 6
	typeBool    valueType = 7
	typeString  valueType = 8
	typeArray   valueType = 9
)

// tensorType numbers the encodings of tensors.
type tensorType uint32

const (
	float32Tensor tensorType = 0
	float16Tensor tensorType = 1
)

func (t tensorType) bytesPerValue() uint64 {
	if t == float16Tensor {
		return 2
	}
	return 4
}

// tensor is one entry of the directory. Its data comes from value, called for
// each element in the order of the file.
type tensor struct {
	name  string
	typ   tensorType
	cols  int // length of a row
	rows  int // 1 for a vector
	value func(row int) float32
}

func (t tensor) size() uint64 {
	return uint64(t.cols) * uint64(t.rows) * t.typ.bytesPerValue()
}

// metadata collects the key-value section.
type metadata struct {
	buf   []byte
	count uint64
}

func (m *metadata) key(name string, t valueType) {
	m.count++
	m.buf = appendString(m.buf, name)
	m.buf = appendUint32(m.buf, uint32(t))
}

func (m *metadata) text(name, v string) {
	m.key(name, typeString)
	m.buf = appendString(m.buf, v)
}

func (m *metadata) number(name string, v int) {
	m.key(name, typeUint32)
	m.buf = appendUint32(m.buf, uint32(v))
}

func (m *metadata) float(name string, v float32) {
	m.key(name, typeFloat32)
	m.buf = appendUint32(m.buf, math.Float32bits(v))
}

func (m *metadata) flag(name string, v bool) {
	m.key(name, typeBool)
	b := byte(0)
	if v {
		b = 1
	}
	m.buf = append(m.buf, b)
}

// array starts a list of n values of type t; add appends the i-th.
func (m *metadata) array(name string, t valueType, n int, add func(b []byte, i int) []byte) {
	m.key(name, typeArray)
	m.buf = appendUint32(m.buf, uint32(t))
	m.buf = appendUint64(m.buf, uint64(n))
	for i := range n {
		m.buf = add(m.buf, i)
	}
}

// encode writes the whole file.
func encode(w io.Writer, m *metadata, tensors []tensor) error {
	head := appendUint32(nil, magic)
	head = appendUint32(head, version)
	head = appendUint64(head, uint64(len(tensors)))
	head = appendUint64(head, m.count)
	head = append(head, m.buf...)

	offset := uint64(0)
	for _, t := range tensors {
		dims := []int{t.cols, t.rows} // the fastest dimension first
		if t.rows == 1 {
			dims = dims[:1]
		}
		head = appendString(head, t.name)
		head = appendUint32(head, uint32(len(dims)))
		for _, d := range dims {
			head = appendUint64(head, uint64(d))
		}
		head = appendUint32(head, uint32(t.typ))
		head = appendUint64(head, offset)
		offset = align(offset + t.size())
	}
	head = append(head, make([]byte, align(uint64(len(head)))-uint64(len(head)))...)

	out := bufio.NewWriterSize(w, 1<<20)
	out.Write(head) // bufio keeps the first error for Flush
	for _, t := range tensors {
		writeTensor(out, t)
	}
	return out.Flush()
}

func writeTensor(out *bufio.Writer, t tensor) {
	row := make([]byte, 0, t.cols*4)
	for r := range t.rows {
		row = row[:0]
		for range t.cols {
			v := t.value(r)
			if t.typ == float16Tensor {
				row = binary.LittleEndian.AppendUint16(row, float16(v))
			} else {
				row = appendUint32(row, math.Float32bits(v))
			}
		}
		out.Write(row)
	}
	out.Write(make([]byte, align(t.size())-t.size()))
}

func align(n uint64) uint64 { return (n + alignment - 1) / alignment * alignment }

// float16 converts to IEEE 754 half precision, rounding toward zero; values
// too small for a normal number become zero, too large ones infinity.
func float16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits>>16) & 0x8000
	exponent := int(bits>>23&0xff) - 127 + 15
	switch {
	case exponent <= 0:
		return sign
	case exponent >= 31:
		return sign | 0x7c00
	}
	return sign | uint16(exponent)<<10 | uint16(bits>>13)&0x3ff
}

func appendUint32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func appendUint64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendString(b []byte, s string) []byte {
	return append(appendUint64(b, uint64(len(s))), s...)
}
