"""The half that runs on the user's machine, without torch: find a tree, edit it, check it, put it back."""
