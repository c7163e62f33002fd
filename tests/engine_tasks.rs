//! engine_tasks
