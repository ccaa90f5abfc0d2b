"""Step: training of a policy by reinforcement learning (DQN, PPO or ES) against the size or the scores of the code."""
