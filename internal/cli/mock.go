package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"evenkeel/internal/engine"
	"evenkeel/internal/mock"
)

type mockFlags struct {
	ports        string
	control      string
	models       []string
	engine       string
	kvTokens     int
	dataParallel int
	adapters     []string
	maxLoras     int
	loraLoad     time.Duration
	prefill      float64
	interToken   time.Duration
	baseLatency  time.Duration
	slots        int
	queueLimit   int
	outputTokens int
	name         string
	ownedBy      string
	apiKey       string
	seed         uint64
	tlsCert      string
	tlsKey       string
}

func newMock() *cobra.Command {
	var f mockFlags
	cmd := &cobra.Command{
		Use:   "mock [flags]",
		Short: "Run simulated engines over real HTTP",
		Long: `Mock runs any number of simulated engines in one process, each on its own port of 127.0.0.1. They speak the
OpenAI and Anthropic APIs, streamed and not, with usage, and show vLLM-style /metrics.

With --engine they keep the times of one of the simulator's engine models: requests share steps and memory, a prompt's
prefix that is still in the cache is not computed again (and told as cached tokens), and what does not fit waits or is
preempted. Four bytes of text are a token. Without it, times are fixed, and requests do not slow each other down.
Engine models: ` + strings.Join(engine.Presets(), ", ") + `.

Faults can be switched while they run, through a control listener:
  curl -X POST   http://127.0.0.1:CONTROL/engines/8001/fault -d '{"kind":"status","status":500,"rate":0.5}'
  curl -X DELETE http://127.0.0.1:CONTROL/engines/8001/fault
  curl           http://127.0.0.1:CONTROL/engines

The JSON of a fault; all but kind may be left out. Below, a field in capitals stands for its value:
  kind          what goes wrong, one of those below
  variant       which form of it, for a kind that has variants; the first is the default
  rate          share of the requests that are hit (default 1)
  count         most requests that are hit; 0 = no limit
  path          hit requests whose path starts with it (default: POST under /v1)
  after         events of a stream that come first; comments: how many (default 3); big_event: which token
  status        HTTP status of status and stream_error (default 500)
  retry_after   header Retry-After of status
  body          body of status (default: an error as the API has it)
  factor        what slow multiplies times by (default 10)
  size          bytes of big_event's token (default 1 MiB)
  delay         such as "150ms": between the writes of split, comments and big_event; else before the request
                is looked at
Kinds:
` + faultKinds(),
		Example: `  evenkeel mock --ports 8001,8002,8003
  evenkeel mock --ports 8001-8010 --slots 4 --inter-token 20ms --prefill 2000
  evenkeel mock --ports 8001-8004 --engine vllm-8192 --kv-tokens 100000 --output-tokens 300
  evenkeel mock --ports 0,0 --model llama --output-tokens 100 --name b`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMock(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.ports, "ports", "8001,8002", "`list` of ports and ranges, such as 8001,8003-8005; 0 takes a free one")
	flags.StringVar(&f.control, "control", "127.0.0.1:0", "`address` of the control listener")
	flags.StringArrayVar(&f.models, "model", []string{"mock-model"}, "`name` of a model to serve; may be given several times")
	flags.StringVar(&f.engine, "engine", "", "`model` that sets the times, one of those above, or a file that simulate --fit-to has written (default fixed times)")
	flags.IntVar(&f.kvTokens, "kv-tokens", 0, "`size` of the KV cache in tokens; 0 = the engine model's, or 131072 without one")
	flags.IntVar(&f.dataParallel, "data-parallel", 1, "`engines` behind each port, each with a queue and a cache of its own; needs --engine")
	flags.StringArrayVar(&f.adapters, "lora", nil, "`name` of an adapter of the first model; may be given several times; needs --engine")
	flags.IntVar(&f.maxLoras, "max-loras", 1, "`adapters` that are in memory at one time")
	flags.DurationVar(&f.loraLoad, "lora-load", 0, "`time` that loading an adapter takes")
	flags.Float64Var(&f.prefill, "prefill", 0, "`tokens` per second of reading a prompt; 0 = instant")
	flags.DurationVar(&f.interToken, "inter-token", 0, "`time` between two tokens; 0 = as fast as possible")
	flags.DurationVar(&f.baseLatency, "base-latency", 0, "`time` before the first token of every answer")
	flags.IntVar(&f.slots, "slots", 0, "`requests` served at once, others queue; 0 = unlimited, or the engine model's")
	flags.IntVar(&f.queueLimit, "queue-limit", 0, "`requests` that may queue, more get 503; 0 = unlimited")
	flags.IntVar(&f.outputTokens, "output-tokens", 16, "`length` of answers, unless the request's own limit is smaller")
	flags.StringVar(&f.name, "name", "mock", "`prefix` of the names of the engines, which their answers begin with: PREFIX-1, PREFIX-2, ...")
	flags.StringVar(&f.ownedBy, "owned-by", "", "`owner` of the models in /v1/models; vllm makes it pass for vLLM (default evenkeel-mock)")
	flags.StringVar(&f.apiKey, "api-key", "", "`key` that requests must carry (default none)")
	flags.Uint64Var(&f.seed, "seed", 1, "`seed` of texts and of faults with a rate")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "PEM `file` with a certificate: the engines then speak HTTPS alone")
	flags.StringVar(&f.tlsKey, "tls-key", "", "PEM `file` with the certificate's key")
	return cmd
}

// tls is nil without a certificate.
func (f mockFlags) tls() (*tls.Config, error) {
	if f.tlsCert == "" && f.tlsKey == "" {
		return nil, nil
	}
	if f.tlsCert == "" || f.tlsKey == "" {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}
	pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.tlsCert, f.tlsKey, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

func runMock(cmd *cobra.Command, f mockFlags) error {
	ports, err := parsePorts(f.ports)
	if err != nil {
		return usageError{err}
	}
	secure, err := f.tls()
	if err != nil {
		return usageError{err}
	}
	var model *engine.Config
	if f.engine != "" {
		c, err := engineNamed(f.engine)
		if err != nil {
			return err
		}
		if len(f.adapters) > 0 {
			c.MaxAdapters, c.AdapterLoad = f.maxLoras, f.loraLoad
		}
		model = &c
	}
	var engines []*mock.Engine
	defer func() {
		for _, e := range engines {
			e.Close()
		}
	}()
	for i, port := range ports {
		e, err := mock.New(mock.Config{
			Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Name: f.name + "-" + strconv.Itoa(i+1), Models: f.models,
			Engine: model, DataParallel: f.dataParallel, Adapters: f.adapters, KVTokens: f.kvTokens, PrefillTokensPerSecond: f.prefill, InterToken: f.interToken, BaseLatency: f.baseLatency, Slots: f.slots,
			QueueLimit: f.queueLimit, OutputTokens: f.outputTokens, OwnedBy: f.ownedBy, APIKey: f.apiKey, Seed: f.seed + uint64(i),
			TLS: secure,
		})
		if err != nil {
			return usageError{err}
		}
		if err := e.Start(); err != nil {
			return err
		}
		engines = append(engines, e)
	}
	return serveMocks(cmd, f.control, engines)
}

// serveMocks runs the control listener until the command is stopped.
func serveMocks(cmd *cobra.Command, control string, engines []*mock.Engine) error {
	listener, err := net.Listen("tcp", control)
	if err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	server := &http.Server{Handler: mock.Control(engines), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with Close below
	announce(cmd.OutOrStdout(), listener.Addr(), engines)
	select {
	case <-cmd.Context().Done():
	case err = <-served:
	}
	_ = server.Close() // going away
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

func announce(w io.Writer, control net.Addr, engines []*mock.Engine) {
	for _, e := range engines {
		fmt.Fprintf(w, "engine  %s  (%s)\n", e.URL(), e.Name())
	}
	fmt.Fprintf(w, "control http://%s/engines\n", control)
}

// helpWidth is how long what a fault does may be in one line.
const helpWidth = 95

// faultKinds lists what faults there are.
func faultKinds() string {
	var b strings.Builder
	for _, k := range mock.FaultKinds() {
		at := 0 // column after the name
		fmt.Fprintf(&b, "  %-13s", k.Name)
		does := k.Does
		if len(k.Variants) > 0 {
			does += fmt.Sprintf("; variants: %q", k.Variants)
		}
		for word := range strings.FieldsSeq(does) {
			if at += 1 + len(word); at > helpWidth {
				b.WriteString("\n" + strings.Repeat(" ", 15))
				at = 1 + len(word)
			}
			b.WriteString(" " + word)
		}
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// mostPorts bounds how many engines one process runs.
const mostPorts = 1000

func parsePorts(text string) ([]int, error) {
	var ports []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("--ports %q: %q is neither a port (0 to 65535) nor a range such as 8001-8003", text, part)
		}
		for p := from; p <= to; p++ {
			if len(ports) == mostPorts {
				return nil, fmt.Errorf("--ports %q: more than %d ports", text, mostPorts)
			}
			ports = append(ports, int(p))
		}
	}
	return ports, nil
}
