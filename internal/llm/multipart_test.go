package llm

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
)

var audioAPI = APIOf("POST", "/v1/audio/transcriptions")

// form writes fields as "name=value"; a name with a star is a file.
func form(boundary string, fields ...string) []byte {
	var b bytes.Buffer
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		file := ""
		if strings.HasPrefix(name, "*") {
			file = `; filename="a \"b\".wav"` + "\r\nContent-Type: audio/wav"
		}
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n%s\r\n", boundary, strings.TrimPrefix(name, "*"), file, value)
	}
	fmt.Fprintf(&b, "--%s--\r\n", boundary)
	return b.Bytes()
}

func TestCase68Multipart(t *testing.T) {
	file := string(bytes.Repeat([]byte("\r\n--not the boundary\x00\xff"), 5<<20/23))
	f := func(contentType string, body []byte, want string) {
		t.Helper()
		r, err := ScanRequest(audioAPI, contentType, body)
		if err != nil || r.Model != want {
			t.Errorf("model %q, error %v; want %q", r.Model, err, want)
			return
		}
		if want == "" {
			return
		}
		if got := string(body[r.ModelStart:r.ModelEnd]); got != want {
			t.Errorf("span %q, want %q", got, want)
		}
		prefix, value, suffix := r.Splice(body, "org/other")
		got := bytes.Join([][]byte{prefix, value, suffix}, nil)
		if sha256.Sum256(got) != sha256.Sum256(bytes.Replace(body, []byte("\r\n\r\n"+want+"\r\n"), []byte("\r\n\r\norg/other\r\n"), 1)) {
			t.Error("more than the model's bytes changed")
		}
	}
	f("multipart/form-data; boundary=xyz", form("xyz", "*file="+file, "model=whisper-1"), "whisper-1") // after 5 MB
	f("multipart/form-data; boundary=xyz", form("xyz", "model=whisper-1", "*file="+file), "whisper-1")
	f(`Multipart/Form-Data; charset=utf-8; boundary="x y:z"`, form("x y:z", "*file=x", "model=whisper-1"), "whisper-1")
	f("multipart/form-data; boundary=xyz", form("xyz", "*file=x"), "")
	f("multipart/form-data; boundary=xyz", form("xyz", "model=", "*file=x"), "")
	f("multipart/form-data; boundary=xyz", form("xyz"), "")
	f("multipart/form-data; boundary=xyz", append([]byte("\r\n"), form("xyz", "model=whisper-1")...), "whisper-1")

	r, err := ScanRequest(audioAPI, "multipart/form-data; boundary=b", form("b", "stream=true", "n=2", "prompt=hello", "model=m"))
	if err != nil || !r.Stream || r.N != 2 || r.PromptBytes != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCase68MalformedMultipart(t *testing.T) {
	f := func(contentType, body, code, message string) {
		t.Helper()
		_, err := ScanRequest(audioAPI, contentType, []byte(body))
		var re *RequestError
		if !errors.As(err, &re) || re.Code != code || !strings.Contains(re.Message, message) {
			t.Errorf("%.80q: %v; want %s with %q", body, err, code, message)
		}
	}
	const ct, broken = "multipart/form-data; boundary=b", "evenkeel_invalid_form"
	const disposition = "Content-Disposition: form-data; name="
	f(ct, "garbage", broken, "does not start with the boundary")
	f(ct, "", broken, "does not start with the boundary")
	f(ct, "preamble\r\n"+string(form("b", "model=m")), broken, "does not start with the boundary")
	f(ct, "--b\n"+disposition+"model\n\nm\n--b--\n", broken, "not followed by CR LF")
	f(ct, "--b\r\n"+disposition+"x\r\n\r\nv\n--b\r\n"+disposition+"model\r\n\r\nm\r\n--b--\r\n", broken, "does not end with CR LF")
	f(ct, "--b\r\n"+disposition+"x\r\n\r\nv", broken, "ends too early, in part 1")
	f(ct, "--b\r\n"+disposition+"x\r\n\r\nv\r\n--b", broken, "not followed by CR LF")
	f(ct, "--b\r\n"+disposition+"x\r\n\r\nv\r\n--bc--\r\n", broken, "not followed by CR LF")
	f(ct, "--b\r\nX: y\r\n\r\nv\r\n--b--\r\n", broken, "part 1 has no content-disposition")
	f(ct, "--b\r\n\r\n"+disposition+"x\r\n\r\nv\r\n--b--\r\n", broken, "part 1 has no headers")
	f(ct, "--b\r\n"+disposition+"x\r\nv\r\n--b--\r\n", broken, "no empty line")
	f(ct, "--b\r\n"+disposition+"x; name=model\r\n\r\nv\r\n--b--\r\n", broken, "part 1 has no content-disposition")
	f(ct, "--b\r\n"+disposition+"x; name*=utf-8''model\r\n\r\nv\r\n--b--\r\n", broken, "part 1 has no content-disposition")
	f(ct, "--b\r\nX: y\n"+disposition+"model\r\n"+disposition+"x\r\n\r\nv\r\n--b--\r\n", broken, "part 1 has no content-disposition")
	f(ct, "--b\r\nContent-Disposition: attachment; name=x\r\n\r\nv\r\n--b--\r\n", broken, "part 1 has no content-disposition")
	f(ct, string(form("b", "x=1"))+"--b\r\n", broken, "after the closing boundary")
	f("multipart/form-data", "x", broken, "0 boundaries")
	f("multipart/form-data; boundary=a; boundary=b", "x", broken, "2 boundaries")
	f("multipart/form-data; boundary=", "x", broken, "1 to 70 characters")
	f("multipart/form-data; boundary="+strings.Repeat("b", 71), "x", broken, "1 to 70 characters")
	f(`multipart/form-data; boundary="b`, "x", broken, "malformed")
	f(ct, string(form("b", "model=a", "*file=x", "model=b")), "evenkeel_duplicate_model", `second part "model"`)
	f(ct, string(form("b", "model=a", "MODEL=b")), "evenkeel_duplicate_model", `second part "MODEL"`)
	f(ct, string(form("b", "Model=a")), "evenkeel_invalid_model", "plain field")
	f(ct, string(form("b", "*model=a")), "evenkeel_invalid_model", "plain field")
	f(ct, "--b\r\n"+disposition+"model\r\nContent-Transfer-Encoding: base64\r\n\r\nbQ==\r\n--b--\r\n", "evenkeel_invalid_model", "plain field")
	f(ct, string(form("b", "model="+strings.Repeat("m", 1<<20))), "evenkeel_invalid_model", "1048576 bytes")
	f(ct, string(form("b", "model=a\nb")), "evenkeel_invalid_model", "control character")
}
