"""Ray clusters as the command `tokenfree cluster` starts and uses them: profiles, a rehearsal, jobs."""
