"""Learners, which update the policy: PPO, DQN on measured flips, evolution strategies."""
