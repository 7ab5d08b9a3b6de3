"""Words that Redis cannot take: the run ends and says so, instead of waiting for its lease again and again."""

from postroom.worker import Agent, App
from postroom.worker.model.scripted import ScriptedModel
from tests.worker.loop.office import Office

HALF = "half a character: \ud83d"


def test_a_run_whose_words_cannot_be_written_ends(server_url: str) -> None:
    app = App([Agent("clerk", model=ScriptedModel([HALF]))])
    with Office(server_url, app) as office:
        run = office.submit()
        office.serve(run)
        record = office.dispatcher.get_run(run)
        assert record.status == "done"
        assert record.termination
        assert record.termination.code == "invalid_input"
        told = [each.event["type"] for each in office.dispatcher.events(run, live=False)]
        assert told.count("step_start") == told.count("step_end")
        assert told[-1] == "run_finish"
