"""Every SGLang name that we override, call or read (C3), and the two checks of it: on source and on live classes."""
