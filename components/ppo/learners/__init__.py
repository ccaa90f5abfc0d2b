"""What updates the policy: PPO, DQN on measured flips, evolution strategies."""
