"""`maos chat`: a run that is begun and steered in conversation."""
