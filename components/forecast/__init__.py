"""Forecasts, before any training, what the pretrained policy does to the size of a program."""
