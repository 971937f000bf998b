"""Run SGLang's real scheduler and EAGLE-3 worker without a GPU; docs/cpu-reference.md says what that cannot show."""
