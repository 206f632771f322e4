"""How large a form is once its repetitions are multiplied out, counted before anything is compiled."""
