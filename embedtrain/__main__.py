"""`python -m embedtrain` is the command itself, so that launchers (accelerate, torchrun) can start it."""

from embedtrain.cli import main

main()
