"""What tasks do, a module for each step of the pipeline: functions of tasks, and how the step is planned from them."""
