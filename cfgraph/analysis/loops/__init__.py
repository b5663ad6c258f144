"""Loop analyses: frames, regions, path conditions, trip counts, critical cycles."""
