module evenkeel

go 1.26

require (
	go.uber.org/goleak v1.3.0
	go.yaml.in/yaml/v4 v4.0.0
)
