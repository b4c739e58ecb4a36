package llm

// Kind is what is common to all endpoints of one sort: which habits their HTTP interface has.
type Kind struct {
	Name string
	// CredentialHeader carries the credential, after CredentialPrefix.
	CredentialHeader, CredentialPrefix string
	// DefaultHeaders are sent unless the client sent them.
	DefaultHeaders []Header
	// ListsModels is true if GET /v1/models answers with the models.
	ListsModels bool
}

// Header is one header line.
type Header struct{ Name, Value string }

// kinds is the table: a new kind of endpoint is a line here.
var kinds = []Kind{
	bearer("openai"),
	{Name: "anthropic", CredentialHeader: "X-Api-Key", ListsModels: true,
		DefaultHeaders: []Header{{"Anthropic-Version", "2023-06-01"}}},
	bearer("vllm"),
	bearer("sglang"),
	bearer("llamacpp"),
	bearer("ollama"),
	bearer("tgi"),
	bearer("lmstudio"),
	bearer("triton"),
	bearer("openai-compatible"),
}

// bearer is the kind of endpoint that has the habits of OpenAI's API.
func bearer(name string) Kind {
	return Kind{Name: name, CredentialHeader: "Authorization", CredentialPrefix: "Bearer ", ListsModels: true}
}

// LookupKind returns the kind of that name.
func LookupKind(name string) (Kind, bool) {
	for _, k := range kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Kinds returns the names of all kinds, the best known first.
func Kinds() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}
