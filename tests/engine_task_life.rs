//! engine_task_life
