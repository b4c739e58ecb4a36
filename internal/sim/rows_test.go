package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/trace"
)

// chatter writes a recorded trace of so many exchanges of conversations, in the order in which they ended. What it holds does not grow with
// them.
func chatter(w io.Writer, exchanges int) error {
	rng := rand.New(rand.NewPCG(1, 1))
	type turn struct {
		e     trace.Entry
		chain []uint64
	}
	n, open, under := newNotebook(), make([][]uint64, 20), []turn{}
	for i := range exchanges {
		k := rng.IntN(len(open))
		if len(open[k]) > 60 {
			open[k] = nil
		}
		open[k] = text(rng, open[k], 1+rng.IntN(8))
		e := exchanged(time.Duration(i)*400*time.Millisecond, 64*len(open[k])+rng.IntN(64), 1+rng.IntN(200))
		e.ID, e.Tenant = fmt.Sprintf("ek-%d", i), []string{"a", "b"}[rng.IntN(2)]
		e.Total = time.Duration(rng.IntN(8000)) * time.Millisecond
		if under = append(under, turn{e, open[k]}); len(under) < 20 && i+1 < exchanges {
			continue
		}
		slices.SortFunc(under, func(a, b turn) int { return a.e.At.Add(a.e.Total).Compare(b.e.At.Add(b.e.Total)) })
		for _, u := range under {
			n.write(u.e, u.chain)
		}
		under = under[:0]
		if _, err := n.text.WriteTo(w); err != nil {
			return err
		}
	}
	return nil
}

// temporary returns an empty file.
func temporary(tb testing.TB) *os.File {
	tb.Helper()
	f, err := os.Create(filepath.Join(tb.TempDir(), "rows"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

// readTalks reads a trace of that many exchanges while it is written.
func readChatter(tb testing.TB, exchanges int, s Scratch) *Trace {
	tb.Helper()
	in, out := io.Pipe()
	go func() { _ = out.CloseWithError(chatter(out, exchanges)) }() // ends with the reader
	read, err := ReadRecorded(in, "F", s)
	if err != nil {
		tb.Fatal(err)
	}
	return read
}

// A trace is the same in a file as in memory, however often and from however many places it is read.
func TestTraceInAFile(t *testing.T) {
	const n = 5000
	memory, file := readChatter(t, n, nil), readChatter(t, n, temporary(t))
	if file.rows.flushed == 0 || len(file.rows.tail) > mostTail || memory.rows.flushed > 0 {
		t.Fatalf("%d bytes are in the file, and %d are not", file.rows.flushed, len(file.rows.tail))
	}
	if memory.Len() != n || file.Len() != n || memory.Last() != file.Last() {
		t.Errorf("%d rows to %v, and %d to %v", memory.Len(), memory.Last(), file.Len(), file.Last())
	}
	for _, o := range []ReplayOptions{{}, {Copies: 3, Scale: .3, Spread: true}} {
		if a, b := play(t, memory.From(77), o), play(t, file.From(77), o); !reflect.DeepEqual(a, b) {
			t.Errorf("%+v: what comes from the file is something else", o)
		}
	}
}

// The order of the lines makes no difference to when requests come, be it that of a file behind the one of another balancer.
func TestRecordedInAnyOrder(t *testing.T) {
	f := func(what string, order func(all []trace.Entry)) {
		t.Helper()
		rng := rand.New(rand.NewPCG(1, 1))
		all := make([]trace.Entry, stretchLength+1000)
		for i := range all {
			all[i] = trace.Entry{At: recordedFrom.Add(time.Duration(rng.IntN(1e4)) * time.Second), ID: fmt.Sprint(i), Bytes: 1, Result: exchange.Refused}
		}
		order(all)
		text := []byte(recordedHeader)
		for i := range all {
			text = trace.Append(text, &all[i])
		}
		read, err := ReadRecorded(bytes.NewReader(text), "F", nil)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(all, byArrival)
		for i, row := range read.Rows() {
			if want := &all[i]; row.Recorded.ID != want.ID || row.At != want.At.Sub(all[0].At) {
				t.Fatalf("%s: row %d is that of %s at %v, want that of %s at %v", what, i, row.Recorded.ID, row.At, want.ID, want.At.Sub(all[0].At))
			}
		}
	}
	f("at random", func([]trace.Entry) {})
	f("one file behind the other", func(all []trace.Entry) {
		slices.SortStableFunc(all[:len(all)/2], byArrival)
		slices.SortStableFunc(all[len(all)/2:], byArrival)
	})
}

func byArrival(a, b trace.Entry) int { return a.At.Compare(b.At) }

// From goes round, and a lap takes as long from each row.
func TestTraceFrom(t *testing.T) {
	whole := mustTrace(t, "azure", "azure_conv_300.csv")
	all := rowsOf(whole)
	length := all[299].At + all[299].At/299 + 1
	for _, by := range []int{0, 1, 137, 255, 256, 257, 299} {
		got := whole.From(by)
		for i, r := range got.Rows() {
			want := all[(by+i)%300]
			if want.At -= all[by].At; by+i >= 300 {
				want.At += length
			}
			if !reflect.DeepEqual(r, want) {
				t.Fatalf("from %d, row %d is %+v, want %+v", by, i, r, want)
			}
			if i == 299 && r.At != got.Last() {
				t.Errorf("from %d, the last row comes at %v, and not at %v", by, r.At, got.Last())
			}
		}
	}
}

// Rows are read as they were written, all members of them: what is new in trace.Entry must be in codec too.
func TestCodec(t *testing.T) {
	n := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		n++
		switch v.Kind() {
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				v.Set(reflect.ValueOf(recordedFrom.Add(time.Duration(n) * time.Microsecond)))
				return
			}
			for i := range v.NumField() {
				if v.Type().Field(i).Name != "Hashes" { // the row's chain has them
					fill(v.Field(i))
				}
			}
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0))
			fill(v.Index(1))
		case reflect.String:
			v.SetString(fmt.Sprint("name ", n))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(int64(n) * 1e6 * (1 - 2*int64(n%2)))
		case reflect.Uint64:
			v.SetUint(1<<63 + uint64(n))
		default:
			t.Fatalf("the codec test knows no %s", v.Kind())
		}
	}
	var e trace.Entry
	fill(reflect.ValueOf(&e).Elem())
	want := Row{At: 5, PromptTokens: 6, OutputTokens: 7, Blocks: []uint64{8, 1 << 63}, Model: e.Model, Tenant: e.Tenant, Session: e.Session, Recorded: &e, told: &told{
		chain: []trace.Segment{{Blocks: 3, Name: 4}}, next: []trace.Segment{{Blocks: 9, Name: 1 << 60}}, block: 256, bytesPerToken: 4.5,
	}}
	for _, r := range rowsOf(NewTrace(64, want, Row{At: 9, PromptTokens: 1})) {
		if r.At == 9 {
			want = Row{At: 9, PromptTokens: 1}
		}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("got\n%+v %+v\nwant\n%+v %+v", r, r.Recorded, want, want.Recorded)
		}
	}
}

// faulty is a file on a disk that fails after so many bytes.
type faulty struct {
	*os.File
	room int64
}

var errFull = errors.New("no space left")

func (f faulty) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.room {
		return 0, errFull
	}
	return f.File.WriteAt(p, off)
}

func TestTraceWithoutRoom(t *testing.T) {
	var b bytes.Buffer
	if err := chatter(&b, 8000); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, room := range []int64{0, 1 << 20, 3 << 20, 1 << 40} { // for lines, some more of them, and rows in order
		read, err := ReadRecorded(bytes.NewReader(b.Bytes()), "FILE", faulty{temporary(t), room})
		if err != nil {
			if read != nil || !errors.Is(err, errFull) || !strings.HasPrefix(err.Error(), "FILE: it is too large for memory, and cannot be kept elsewhere: ") {
				t.Fatalf("with room for %d bytes: %v and %v", room, read, err)
			}
			continue
		}
		if rows = read.Len(); room < 1<<40 {
			t.Errorf("room for %d bytes was enough", room)
		}
	}
	if rows != 8000 {
		t.Errorf("%d rows", rows)
	}
	if _, err := ReadMooncake(strings.NewReader(strings.Repeat(`{"timestamp": 0, "input_length": 5000, "output_length": 1, "hash_ids": [0,1,2,3,4,5,6,7,8,9]}`+"\n", 12_000)), "M", faulty{temporary(t), 0}); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}

// A file that does not give back what was written stops everything.
func TestTraceThatIsLost(t *testing.T) {
	file := temporary(t)
	read := readChatter(t, 6000, file)
	if err := file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "what was kept of the trace cannot be read back: ") {
			t.Errorf("got %v", err)
		}
	}()
	play(t, read, ReplayOptions{})
	t.Error("it was played")
}
