package sim

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// readers are the formats of traces.
var readers = map[string]func(io.Reader, string, Scratch) (*Trace, error){"mooncake": ReadMooncake, "azure": ReadAzure}

func mustTrace(tb testing.TB, format, file string) *Trace {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	t, err := readers[format](f, file, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func rowsOf(t *Trace) (all []Row) {
	for _, r := range t.Rows() {
		all = append(all, r)
	}
	return all
}

func TestReadExcerpts(t *testing.T) {
	f := func(format, file string, block int, first Row, last time.Duration) {
		t.Helper()
		trace := mustTrace(t, format, file)
		if trace.Len() != 300 || trace.BlockTokens != block {
			t.Fatalf("%s: %d rows in blocks of %d tokens", file, trace.Len(), trace.BlockTokens)
		}
		r := rowsOf(trace)[0]
		if r.At != first.At || r.PromptTokens != first.PromptTokens || r.OutputTokens != first.OutputTokens || len(r.Blocks) != len(first.Blocks) {
			t.Errorf("%s: the first row is %+v, want %+v", file, r, first)
		}
		if at := trace.Last(); at != last {
			t.Errorf("%s: the last row comes at %v, want %v", file, at, last)
		}
	}
	f("mooncake", "mooncake_conversation_300.jsonl", 512, Row{PromptTokens: 6758, OutputTokens: 500, Blocks: make([]uint64, 14)}, 102*time.Second)
	f("azure", "azure_conv_300.csv", 0, Row{PromptTokens: 374, OutputTokens: 44}, 84_029_102*time.Microsecond)
	f("azure", "azure_code_300.csv", 0, Row{PromptTokens: 4808, OutputTokens: 10}, 216_838_239*time.Microsecond)
}

func TestReadErrors(t *testing.T) {
	f := func(format, text, want string) {
		t.Helper()
		if _, err := readers[format](strings.NewReader(text), "F", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %.80q: got %v, want %q", format, text, err, want)
		}
	}
	row := `{"timestamp": 5, "input_length": 600, "output_length": 50, "hash_ids": [0, 1]}` + "\n"
	f("mooncake", "", "F: it holds no request")
	f("mooncake", row+"{", "F:2: expected a JSON object such as")
	f("mooncake", row+"\n\n[]", "F:4: expected a JSON object such as")
	f("mooncake", `{"input_length": 600}`, "F:1: expected the member timestamp")
	f("mooncake", `{"timestamp": 0, "output_length": 600}`, "F:1: expected the member input_length")
	f("mooncake", `{"timestamp": 0, "input_length": 600}`, "F:1: expected the member output_length")
	f("mooncake", `{"timestamp": -1, "input_length": 1, "output_length": 1}`, "F:1: timestamp is -1, expected milliseconds from 0")
	f("mooncake", `{"timestamp": 1e300, "input_length": 1, "output_length": 1}`, "F:1: timestamp is 1e+300, expected")
	f("mooncake", `{"timestamp": 0, "input_length": 0, "output_length": 1}`, "F:1: a prompt of 0 tokens, expected 1 to")
	f("mooncake", `{"timestamp": 0, "input_length": 1, "output_length": -4, "hash_ids": [1]}`, "F:1: an answer of -4 tokens, expected 1 to")
	f("mooncake", `{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}`, "F:1: hash_ids has 1 entries, expected 2 for an input_length of 513")
	f("mooncake", row+strings.Replace(row, "5,", "3,", 1), "F:2: it is 2ms before the row above")
	f("mooncake", strings.Repeat("x", mostLine+1), "F:1: a line of more than 16 MiB")

	header := azureHeader + "\r\n"
	f("azure", "", "F: it holds no request")
	f("azure", header, "F: it holds no request")
	f("azure", "TIME,In,Out\n", `F:1: the header is "TIME,In,Out", expected "TIMESTAMP,ContextTokens,GeneratedTokens"`)
	f("azure", header+"1,2\n", "F:2: 2 columns, expected 3")
	f("azure", header+"yesterday,2,3\n", `F:2: TIMESTAMP is "yesterday", expected a time such as`)
	f("azure", header+"2023-11-16 18:15:46.6805900,2.5,3\n", `F:2: ContextTokens is "2.5", expected a whole number`)
	f("azure", header+"2023-11-16 18:15:46.6805900,2,many\n", `F:2: GeneratedTokens is "many", expected a whole number`)
	f("azure", header+"2023-11-16 18:15:46.6805900,2,3\n2023-11-16 18:15:45.6805900,2,3\n", "F:3: it is 1s before the row above")
	f("azure", header+"0001-11-16 18:15:46.6805900,2,3\n2023-11-16 18:15:45.6805900,2,3\n", "F:3: TIMESTAMP is")
	f("azure", header+"2023-11-16 18:15:46,0,3\n", "F:2: a prompt of 0 tokens")
}

func TestReadVariants(t *testing.T) {
	f := func(format, text string, rows int) {
		t.Helper()
		trace, err := readers[format](strings.NewReader(text), "F", nil)
		if err != nil || trace.Len() != rows || rowsOf(trace)[0].At != 0 {
			t.Errorf("%s %q: got %+v, %v, want %d rows from 0 on", format, text, trace, err, rows)
		}
	}
	f("mooncake", `{"timestamp": 7000, "input_length": 5, "output_length": 1, "hash_ids": [9], "type": "chat"}`, 1)
	f("mooncake", "\n"+`{"timestamp": 1.5, "input_length": 5, "output_length": 1, "hash_ids": [9]}`+"\r\n\r\n", 1)
	f("azure", "\ufeff"+azureHeader+"\n2023-11-16 18:15:46.6805900,2,3\n\n2023-11-16 18:15:46.6805900,2,3", 2)
}

// TestReadByteOrderMark: editors put a mark at the beginning of any text.
func TestReadByteOrderMark(t *testing.T) {
	for format, text := range map[string]string{
		"mooncake": `{"timestamp": 7000, "input_length": 5, "output_length": 1, "hash_ids": [9]}`, "azure": azureHeader + "\n2023-11-16 18:15:46,2,3",
	} {
		if trace, err := readers[format](strings.NewReader("\ufeff"+text), "F", nil); err != nil || trace.Len() != 1 {
			t.Errorf("%s: got %+v, %v", format, trace, err)
		}
	}
}

// TestReadAzureZones: the traces of 2024 write their zone, and six digits of a second.
func TestReadAzureZones(t *testing.T) {
	trace, err := ReadAzure(strings.NewReader(azureHeader+"\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:01.517000+02:00,2399,6\n2024-05-10 00:00:02Z,76,15\n"), "F", nil)
	if err != nil || trace.Len() != 3 || rowsOf(trace)[1].At != 1_507_070*time.Microsecond || trace.Last() != 1_990_070*time.Microsecond {
		t.Errorf("got %+v, %v", trace, err)
	}
}

func FuzzRead(f *testing.F) {
	for format, file := range map[string]string{"mooncake": "mooncake_conversation_300.jsonl", "azure": "azure_conv_300.csv"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(format, text[:2000])
		f.Add(format, text[:bytes.LastIndexByte(text[:2000], '\n')])
	}
	f.Add("mooncake", []byte(`{"timestamp": 1e17, "input_length": 1, "output_length": 16777216, "hash_ids": [18446744073709551615]}`))
	f.Add("azure", []byte(azureHeader+"\n2024-05-10 00:00:00.009930+00:00,1,1\n2024-05-10 00:00:00.009930-23:59,1,1\n"))
	f.Add("mooncake", []byte("\ufeff{}"))
	f.Add("azure", []byte(azureHeader+"\n0001-01-01 00:00:00,1,1\n9999-12-31 23:59:59.9999999,1,1\n"))
	f.Fuzz(func(t *testing.T, format string, text []byte) {
		read := readers[format]
		if read == nil {
			return
		}
		trace, err := read(bytes.NewReader(text), "FILE", nil)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "FILE:") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		last := time.Duration(0)
		for i, r := range trace.Rows() {
			if r.At < last || r.At > mostTime || r.plausible() != nil {
				t.Fatalf("row %d is %+v after %v", i, r, last)
			}
			last = r.At
		}
		p, err := NewReplay(1, trace, ReplayOptions{Copies: 3, Spread: true})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(drain(t, p)); n != 3*trace.Len() {
			t.Errorf("%d requests of 3 × %d rows", n, trace.Len())
		}
	})
}

// drain returns all requests of a source, which must be in order.
func drain(t *testing.T, s Source) (all []Request) {
	t.Helper()
	var r Request
	for s.Next(&r) {
		if n := len(all); n > 0 && r.At < all[n-1].At {
			t.Fatalf("request %d comes at %v, after one at %v", n, r.At, all[n-1].At)
		}
		all = append(all, r)
	}
	return all
}
