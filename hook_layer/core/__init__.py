"""Parts that the hooks of all frameworks share.

`hook.BaseHook` owns one of each part. `session.Session` opens the trial at the first step,
`clock.StepClock` counts steps, `collector.Collector` decides what is saved, `recorder.Recorder`
captures it and `stop_listener.StopListener` ends the run on request.
"""
