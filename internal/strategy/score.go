package strategy

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"evenkeel/internal/route"
)

// The two kinds of what a score is made of. They allocate nothing: a decision may evaluate a thousand under the Router's lock.
type (
	number    func(*route.Round, *route.Candidate) float64
	condition func(*route.Round, *route.Candidate) bool
)

// longestScore is the most bytes of a score: more than anybody wants to explain, and few enough that parsing cannot run deep.
const longestScore = 1000

// scoreTerm is something that a score may name.
type scoreTerm struct {
	name, unit, meaning string
	forecast            bool // the Router works it out where it is asked for alone
	value               number
}

var scoreTerms = []scoreTerm{
	{"wait", "s", "until the deployment has done the prompts before this one", true,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Forecast.Wait }},
	{"prefill", "s", "for this prompt then, without what is cached", true,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Forecast.Prefill }},
	{"first_token", "s", "`wait + prefill`", true,
		func(_ *route.Round, c *route.Candidate) float64 { return untilFirst(c) }},
	{"itl", "s", "between two tokens of the answer", true,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Forecast.Token }},
	{"last_token", "s", "`first_token + output * itl`", true,
		func(r *route.Round, c *route.Candidate) float64 { return untilFirst(c) + answering(r, c) }},
	{"externality", "s", "that this prompt makes those behind it wait longer or compute again, as `predicted_wait` has it", true,
		func(r *route.Round, c *route.Candidate) float64 { return externality(r, c) }},
	{"pressure", "s", "for the answers that the prompt slows down, how full the cache is and how much of a limit per minute is used, as `predicted_wait` has it", true,
		func(r *route.Round, c *route.Candidate) float64 { return pressure(r, c) }},
	{"price", "$", "that the request is expected to cost there; 0 without prices", true,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Forecast.Dollars }},
	{"cached", "tokens", "of the prompt that its cache is likely to hold", true,
		func(_ *route.Round, c *route.Candidate) float64 { return float64(c.Forecast.Cached) }},
	{"uncached", "tokens", "`prompt - cached`", true,
		func(r *route.Round, c *route.Candidate) float64 { return float64(r.Prompt - c.Forecast.Cached) }},
	{"answers", "requests", "whose answers it is producing", true,
		func(_ *route.Round, c *route.Candidate) float64 { return float64(c.Forecast.Answers) }},
	{"cache_fill", "0 to 1", "part of its cache that what runs there and this request need; 0 if its size is not known", true,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Forecast.Fill }},
	{"prompt", "tokens", "of this request, estimated", false,
		func(r *route.Round, _ *route.Candidate) float64 { return float64(r.Prompt) }},
	{"output", "tokens", "likely of the answer: the mean that was learned, at most its limit", false,
		func(r *route.Round, _ *route.Candidate) float64 { return float64(r.Answer) }},
	{"in_flight", "requests", "running there for this balancer", false,
		func(_ *route.Round, c *route.Candidate) float64 { return float64(c.InFlight) }},
	{"tokens", "tokens", "reserved there: prompts and expected answers of what runs", false,
		func(_ *route.Round, c *route.Candidate) float64 { return float64(c.Tokens) }},
	{"work", "tokens", "outstanding there, as in `least_tokens`", false,
		func(_ *route.Round, c *route.Candidate) float64 { return float64(c.Work) }},
	{"weight", "relative", "of the deployment", false,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Weight }},
	{"ttft", "s", "learned time to the first token, as in `p2c_ewma`", false,
		func(_ *route.Round, c *route.Candidate) float64 { return c.TTFT }},
	{"ttft_p95", "s", "95th percentile of the last 100; 0 if nothing is known", false,
		func(_ *route.Round, c *route.Candidate) float64 { return c.P95 }},
	{"samples", "answers", "that `ttft` rests on", false,
		func(_ *route.Round, c *route.Candidate) float64 { return float64(c.Samples) }},
	{"failures", "requests", "that failed there of late; half forgotten after 10 s", false,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Penalty }},
	{"healthy", "s", "since it was out last; very many if it never was", false,
		func(_ *route.Round, c *route.Candidate) float64 { return c.Healthy.Seconds() }},
	{"rate", "requests/s", "for each deployment of the model", false,
		func(r *route.Round, _ *route.Candidate) float64 { return r.Outlook.Rate }},
	{"mean_prefill", "s", "of the model's prompts", false,
		func(r *route.Round, _ *route.Candidate) float64 { return r.Outlook.Prefill }},
	{"error", "logarithm", "of forecasts: the mean logarithm of what came over what was forecast, whichever way; 0.7 is twice or half", false,
		func(r *route.Round, _ *route.Candidate) float64 { return r.Outlook.Error }},
}

// streamed is the one condition that a score may name.
const streamed = "streamed"

// scoreCompiler turns the tree of an expression into functions.
type scoreCompiler struct{ foresees bool }

// compileScore makes a score of its text, and says whether it needs forecasts.
func compileScore(text string) (score number, foresees bool, err error) {
	if len(text) > longestScore {
		return nil, false, fmt.Errorf("score has %d characters; the most is %d", len(text), longestScore)
	}
	tree, err := parser.Parse(text)
	if err != nil {
		var at *file.Error
		if errors.As(err, &at) {
			return nil, false, fmt.Errorf("score: character %d: %s", at.From+1, at.Message)
		}
		return nil, false, fmt.Errorf("score %q: %w", text, err)
	}
	c := scoreCompiler{}
	if score, err = c.number(tree.Node); err != nil {
		return nil, false, fmt.Errorf("score: %w", err)
	}
	return score, c.foresees, nil
}

// misplaced says where a tree has what is not understood there.
func misplaced(n ast.Node, format string, args ...any) error {
	return fmt.Errorf("character %d: %w", n.Location().From+1, fmt.Errorf(format, args...))
}

func (c *scoreCompiler) number(n ast.Node) (number, error) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		return literal(float64(n.Value)), nil
	case *ast.FloatNode:
		return literal(n.Value), nil
	case *ast.IdentifierNode:
		return c.term(n)
	case *ast.UnaryNode:
		return c.sign(n)
	case *ast.BinaryNode:
		return c.arithmetic(n)
	case *ast.ConditionalNode:
		return c.choice(n)
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		if f, ok := n.Callee.(*ast.IdentifierNode); ok {
			return c.call(n, f.Value, n.Arguments)
		}
	}
	return nil, misplaced(n, "%s is no number", n)
}

func literal(x float64) number {
	return func(*route.Round, *route.Candidate) float64 { return x }
}

func (c *scoreCompiler) term(n *ast.IdentifierNode) (number, error) {
	for i := range scoreTerms {
		if t := &scoreTerms[i]; t.name == n.Value {
			c.foresees = c.foresees || t.forecast
			return t.value, nil
		}
	}
	if n.Value == streamed {
		return nil, misplaced(n, "%s is a condition, not a number; write %s ? A : B", streamed, streamed)
	}
	names := make([]string, 0, len(scoreTerms))
	for i := range scoreTerms {
		names = append(names, scoreTerms[i].name)
	}
	return nil, misplaced(n, "%q is no term; there are %s, and the condition %s", n.Value, strings.Join(names, ", "), streamed)
}

func (c *scoreCompiler) sign(n *ast.UnaryNode) (number, error) {
	x, err := c.number(n.Node)
	switch {
	case err != nil:
		return nil, err
	case n.Operator == "+":
		return x, nil
	case n.Operator == "-":
		return func(r *route.Round, c *route.Candidate) float64 { return -x(r, c) }, nil
	}
	return nil, misplaced(n, "%q makes a condition, and a number is needed", n.Operator)
}

func (c *scoreCompiler) both(n *ast.BinaryNode) (a, b number, err error) {
	if a, err = c.number(n.Left); err == nil {
		b, err = c.number(n.Right)
	}
	return a, b, err
}

func (c *scoreCompiler) arithmetic(n *ast.BinaryNode) (number, error) {
	a, b, err := c.both(n)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "+":
		return func(r *route.Round, c *route.Candidate) float64 { return a(r, c) + b(r, c) }, nil
	case "-":
		return func(r *route.Round, c *route.Candidate) float64 { return a(r, c) - b(r, c) }, nil
	case "*":
		return func(r *route.Round, c *route.Candidate) float64 { return a(r, c) * b(r, c) }, nil
	case "/":
		return func(r *route.Round, c *route.Candidate) float64 { return a(r, c) / b(r, c) }, nil
	case "^", "**":
		return func(r *route.Round, c *route.Candidate) float64 { return math.Pow(a(r, c), b(r, c)) }, nil
	}
	return nil, misplaced(n, "%q gives no number; + - * / and ^ do", n.Operator)
}

func (c *scoreCompiler) choice(n *ast.ConditionalNode) (number, error) {
	when, err := c.condition(n.Cond)
	if err != nil {
		return nil, err
	}
	a, err := c.number(n.Exp1)
	if err != nil {
		return nil, err
	}
	b, err := c.number(n.Exp2)
	if err != nil {
		return nil, err
	}
	return func(r *route.Round, c *route.Candidate) float64 {
		if when(r, c) {
			return a(r, c)
		}
		return b(r, c)
	}, nil
}

var (
	ofOne = map[string]func(float64) float64{"abs": math.Abs, "log": math.Log, "exp": math.Exp, "sqrt": math.Sqrt}
	ofTwo = map[string]func(a, b float64) float64{"min": math.Min, "max": math.Max}
)

// call is of one of the functions; min and max take two or more.
func (c *scoreCompiler) call(n ast.Node, name string, arguments []ast.Node) (number, error) {
	one, two := ofOne[name], ofTwo[name]
	switch {
	case one == nil && two == nil:
		return nil, misplaced(n, "%q is no function; there are min, max, abs, log, exp and sqrt", name)
	case one != nil && len(arguments) != 1:
		return nil, misplaced(n, "%s takes one number, not %d", name, len(arguments))
	case two != nil && len(arguments) < 2:
		return nil, misplaced(n, "%s takes two numbers or more, not %d", name, len(arguments))
	}
	value, err := c.number(arguments[0])
	if err != nil {
		return nil, err
	}
	if one != nil {
		return func(r *route.Round, c *route.Candidate) float64 { return one(value(r, c)) }, nil
	}
	for _, next := range arguments[1:] {
		a := value
		b, err := c.number(next)
		if err != nil {
			return nil, err
		}
		value = func(r *route.Round, c *route.Candidate) float64 { return two(a(r, c), b(r, c)) }
	}
	return value, nil
}

func (c *scoreCompiler) condition(n ast.Node) (condition, error) {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		if n.Value == streamed {
			return func(r *route.Round, _ *route.Candidate) bool { return r.Facts.Stream }, nil
		}
	case *ast.UnaryNode:
		if n.Operator == "!" || n.Operator == "not" {
			a, err := c.condition(n.Node)
			return func(r *route.Round, c *route.Candidate) bool { return !a(r, c) }, err
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&", "or", "||":
			return c.logic(n)
		case "<", "<=", ">", ">=", "==", "!=":
			return c.comparison(n)
		}
	}
	return nil, misplaced(n, "%s is no condition, such as prompt > 1000 or %s", n, streamed)
}

func (c *scoreCompiler) logic(n *ast.BinaryNode) (condition, error) {
	a, err := c.condition(n.Left)
	if err != nil {
		return nil, err
	}
	b, err := c.condition(n.Right)
	if err != nil {
		return nil, err
	}
	if n.Operator == "and" || n.Operator == "&&" {
		return func(r *route.Round, c *route.Candidate) bool { return a(r, c) && b(r, c) }, nil
	}
	return func(r *route.Round, c *route.Candidate) bool { return a(r, c) || b(r, c) }, nil
}

func (c *scoreCompiler) comparison(n *ast.BinaryNode) (condition, error) {
	a, b, err := c.both(n)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "<":
		return func(r *route.Round, c *route.Candidate) bool { return a(r, c) < b(r, c) }, nil
	case "<=":
		return func(r *route.Round, c *route.Candidate) bool { return a(r, c) <= b(r, c) }, nil
	case ">":
		return func(r *route.Round, c *route.Candidate) bool { return a(r, c) > b(r, c) }, nil
	case ">=":
		return func(r *route.Round, c *route.Candidate) bool { return a(r, c) >= b(r, c) }, nil
	case "==":
		return func(r *route.Round, c *route.Candidate) bool { return a(r, c) == b(r, c) }, nil
	}
	return func(r *route.Round, c *route.Candidate) bool { return a(r, c) != b(r, c) }, nil
}
