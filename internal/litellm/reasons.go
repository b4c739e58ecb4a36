package litellm

// What does not carry over of each section, and what to do instead. A key that is in none of these tables is not known to this import.
var (
	topLeft = reasons{
		{"include", "the files that it names are not read; put them together into one file first"},
		{"credential_list", "must be a list"},
		{"guardrails guardrail_list prompts policies policy_attachments mcp_* agents agent_list agent_settings vector_store* search_tools sandbox_tools", "there is none of this here: requests and answers pass as they are"},
		{"files_settings finetune_settings assistant_settings default_vertex_config", "uploads, batches and the like go to the only endpoint that serves their model, as they came"},
		{"callback_settings", "there are no callbacks; metrics and the decisions of requests are at the admin listener"},
		{"environment_variables", "must be a map"},
		{"worker_registry", "has no counterpart"},
	}

	paramsLeft = reasons{
		{"timeout stream_timeout request_timeout", "deadlines hold for all models here: write deadlines, or let clients send x-evenkeel-timeout"},
		{"max_retries num_retries", "retry.max_attempts holds for all models here"},
		{"cooldown_time allowed_fails", "health_checks.circuit_breaker holds for all deployments here"},
		{"api_version", "is not sent"},
		{"azure_ad_token tenant_id client_id client_secret azure_username azure_password azure_scope", "tokens of Entra ID are not fetched in this version; use a key"},
		{"organization", "is not added to requests; clients that send openai-organization themselves have it passed on"},
		{"extra_headers headers default_headers", "headers are not added to requests; forward_headers passes on what clients send"},
		{"ssl_verify", "certificates are always verified; write tls: {ca: FILE} at the endpoint for an authority of your own"},
		{"tags tag_regex", "requests are not routed by tags in this version; give each tag a model name of its own"},
		{"itpm otpm", "tpm counts tokens of prompts and answers together here"},
		{"max_budget budget_duration default_api_key_*", "there are no budgets in this version"},
		{"drop_params additional_drop_params allowed_openai_params modify_params", "parameters are not dropped: a provider refuses what it does not know"},
		{"temperature max_tokens max_completion_tokens top_p stop seed frequency_penalty presence_penalty logit_bias response_format reasoning_effort thinking tools tool_choice user metadata extra_body stream_options keep_alive num_ctx n",
			"defaults are not added to requests: clients send it themselves"},
		{"cache_creation_* input_cost_* output_cost_* cache_read_* cost_per_* tiered_pricing", "prices here are those of input, cached_input, output and request"},
		{"aws_* vertex_* s3_* gcs_* watsonx_*", "belongs to a provider that this version does not serve"},
		{"mock_response mock_timeout", "answers are not made up here; evenkeel mock is an engine that does it"},
		{"configurable_clientside_auth_params", "clients cannot choose where their requests go"},
		{"use_* merge_reasoning_content_in_choices supports_system_message hf_model_name input_type max_file_size_mb keepalive_seconds allow_client_keepalive_override model_info",
			"requests and answers are not changed here"},
		{"auto_router_* complexity_router_* adaptive_router_* quality_router_*", "models are not chosen by what a prompt says in this version"},
		{"provider_affinity_header", "affinity goes by sessions and prefixes here"},
		{"litellm_credential_name api_key api_base base_url", "is not used by this deployment"},
		{"input_cost_per_token output_cost_per_token cache_read_input_token_cost rpm tpm weight order max_parallel_requests region_name", "holds for named models only; name them"},
	}

	infoLeft = reasons{
		{"supports_* supported_*", "this version does not choose by what models can do, and a list of it here would have to be whole"},
		{"max_tokens max_output_tokens", "the output limit of a model is not looked at"},
		{"max_input_tokens", "holds for named models only; name them"},
		{"cache_creation_* input_cost_* output_cost_* cache_read_* tiered_pricing", "prices here are those of input, cached_input, output and request"},
		{"access_groups access_windows team_id team_public_model_name tier blocked", "any client may ask for any model in this version"},
		{"health_check_* disable_background_health_check", "health_checks hold for all deployments; without a probe_prompt no model is asked"},
		{"enable_tag_filtering allow_fail_open", "requests are not routed by tags in this version"},
		{"ptu_* cost_per_ptu_per_hour", "reserved capacity has no price here"},
		{"input_cost_per_token output_cost_per_token cache_read_input_token_cost", "prices here are those of input, cached_input, output and request"},
	}

	sharedLeft = reasons{
		{"context_window_fallbacks", "a 400 for a prompt that is too long goes to the client; another model is not asked for it in this version"},
		{"content_policy_fallbacks", "a refusal is not taken to another model"},
		{"max_fallbacks", "max_attempts bounds fallbacks too"},
		{"retry_after", "pauses between attempts follow from the answers; there is no setting"},
		{"retry_policy allowed_fails_policy model_group_retry_policy", "which failures are repeated and count is fixed: docs/errors.md"},
		{"model_group_alias", "belongs to router_settings here"},
		{"default_litellm_params", "defaults are not added to requests: clients send them themselves"},
		{"set_verbose debug_level", "write log: {level: debug}"},
		{"redis_* cache_kwargs caching_groups cache_responses cache cache_params enable_redis_*", "answers are not cached, and limits and breakers are each process's own: give each of n replicas the n-th part of a limit"},
		{"enable_tag_filtering tag_filtering_match_any tag_routing_prefix", "requests are not routed by tags in this version; give each tag a model name of its own"},
	}

	routerLeft = append(reasons{
		{"routing_strategy_args", "the strategies here have options of their own: docs/strategies.md"},
		{"routing_groups", "a strategy is set for all models, or at one model: models.NAME.strategy"},
		{"enable_pre_call_checks", "a prompt that is too long for a model is refused by the model; this version does not look at context windows"},
		{"disable_cooldowns", "breakers cannot be switched off; a trip_after that is high comes near"},
		{"provider_budget_config", "there are no budgets in this version"},
		{"default_priority polling_interval", "places are given in order of arrival"},
		{"enable_health_check_routing health_check_* background_health_check_model_groups", "health decides always: docs/health.md"},
		{"enable_weighted_failover fallback_on_unsupported_params enable_mid_stream_fallback_continuation", "what is repeated, and when, is fixed: docs/http.md"},
		{"client_ttl ignore_invalid_deployments router_general_settings alerting_config assistants_config search_tools guardrail_list plugins deployment_affinity_ttl_seconds session_affinity_* model_group_affinity_config auto_router_*",
			"has no counterpart"},
	}, sharedLeft...)

	moduleLeft = append(reasons{
		{"callbacks success_callback failure_callback service_callbacks audit_log_callbacks langfuse_* prometheus_* otel_* turn_off_message_logging redact_*",
			"there are no callbacks; /metrics for Prometheus and the decision of each request are at the admin listener, and nothing logs what requests say"},
		{"drop_params modify_params additional_drop_params", "parameters are not dropped or changed: a provider refuses what it does not know"},
		{"ssl_verify", "certificates are always verified; write tls: {ca: FILE} at the endpoint for an authority of your own"},
		{"force_ipv4", "of a host's addresses the first that answers is used"},
		{"json_logs", "write log: {format: json}"},
		{"max_budget budget_duration max_user_budget max_end_user_budget default_* internal_user_budget_duration upperbound_key_generate_params key_generation_settings max_internal_user_budget",
			"there are no budgets, users and teams in this version"},
		{"mcp_aliases enable_preview_features custom_provider_map disable_* enable_* public_* request_* num_retries_* use_* s3_* gcs_* store_* forward_* vertex_* suppress_debug_info telemetry tag_budget_config priority_reservation* custom_prometheus_*",
			"has no counterpart"},
	}, sharedLeft...)

	generalLeft = reasons{
		{"database_* store_model_in_db supported_db_objects disable_prisma_schema_update allow_requests_on_db_unavailable proxy_batch_write_at proxy_config_reload_interval_seconds coordination_redis",
			"there is no database: models, keys and credentials that are in LiteLLM's have to be written into the file"},
		{"custom_auth enable_jwt_auth litellm_jwtauth enable_oauth2_* oauth2_config_mappings custom_sso allowed_routes admin_only_routes public_routes allowed_ips litellm_key_header_name custom_key_generate service_account_settings user_api_key_cache_*",
			"clients are known by virtual_keys, or certificates with tls.client_ca"},
		{"key_management_* use_azure_key_vault use_google_kms", "secrets come from environment variables or files (file:PATH)"},
		{"alerting* alert_*", "there are no alerts; write rules over /metrics"},
		{"health_check_interval", "counts only with background_health_checks"},
		{"health_check_* background_health_* model_list_healthy_only", "health_checks hold for all deployments: docs/health.md"},
		{"max_parallel_requests global_max_parallel_requests max_in_flight_requests_per_worker max_queued_requests_per_worker admission_queue_timeout_seconds",
			"requests are bounded where they run: limits.in_flight of endpoints and providers, queue.max_waiting, connections.max"},
		{"max_response_size_mb", "answers are not bounded"},
		{"forward_client_headers_to_llm_api forward_openai_org_id", "a list of headers goes upstream, openai-* and anthropic-* among them; forward_headers adds to it"},
		{"pass_through_endpoints use_client_credentials_pass_through_routes pass_through_* enable_openai_websocket_passthrough", "other paths than those of the APIs are not passed through"},
		{"completion_model embedding_model image_generation_model moderation_model infer_model_from_keys", "a request names its model"},
		{"enforce_user_param enforced_params user_header_* reject_clientside_metadata_tags", "what a request says is for the engine to judge"},
		{"store_prompts_in_spend_logs maximum_* disable_spend_* spend_* proxy_budget_* disable_reset_budget disable_adding_master_key_hash_to_db use_spend_logs_* disable_budget_reservation",
			"spending is not kept; trace records sizes and times, and never text"},
		{"ui_* disable_* enable_* mcp_* user_mcp_* default_team_disabled allow_user_auth allow_client_side_credentials litellm_license use_x_forwarded_for plugins otel cancel_on_disconnect return_wildcard_routes",
			"has no counterpart"},
	}
)
