package telemetry

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestListeners(t *testing.T) {
	m := newMetrics(t, &world{})
	data, admin := m.Listener("data"), m.Listener("admin")
	data.Opened()
	data.Opened()
	data.Closed()
	data.Refused(RefusedMax)
	data.Refused(RefusedMax)
	data.Refused(RefusedAccept)
	admin.Certificate(time.Unix(1_900_000_000, 5))
	admin.CertificateReloaded(true)
	check := func(want string) {
		t.Helper()
		var got []string
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "evenkeel_conn") && !strings.HasPrefix(f.GetName(), "evenkeel_cert") {
				continue
			}
			for _, s := range f.GetMetric() {
				text := strings.TrimPrefix(f.GetName(), "evenkeel_")
				for _, l := range s.GetLabel() {
					text += " " + l.GetValue()
				}
				if value := s.GetGauge().GetValue() + s.GetCounter().GetValue(); value != 0 || strings.HasPrefix(text, "cert") {
					got = append(got, fmt.Sprintf("%s %.0f", text, value))
				}
			}
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
	check("certificate_expiry_timestamp_seconds admin 1900000000; certificate_reload_successful admin 1; connections data 1; " +
		"connections_refused_total data accept_error 1; connections_refused_total data max 2")
	admin.CertificateReloaded(false)
	data.Closed()
	check("certificate_expiry_timestamp_seconds admin 1900000000; certificate_reload_successful admin 0; " +
		"connections_refused_total data accept_error 1; connections_refused_total data max 2")
}
