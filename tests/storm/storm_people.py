"""A campaign of the storm's world in which one person has judged every image."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select


def ask_people(world: Path) -> None:
    """Make the campaign in the folder ``people``, and vote: yes to all images but the negative control images."""
    from holdfast_people.assignment import next_task
    from holdfast_people.campaigns import Settings
    from holdfast_people.identity import find_invitation, invite
    from holdfast_people.making import CampaignSpec, make_campaign
    from holdfast_people.tables import items, places
    from holdfast_people.voting import cast, finish
    from holdfast_people.web.services.server_state import ServeOptions, open_server

    server = open_server(ServeOptions(state=world / "people"))
    settings = Settings(people_per_image=1, images_per_task=8, at_least=1, rule="")
    spec = CampaignSpec(str(world / "photos"), sentinels=str(world / "scenes" / "original"), settings=settings)
    now = server.now()
    campaign = make_campaign(server.database, spec, server.folder, now=now).campaign_id
    with server.database.writing() as connection:
        _, token = invite(connection, note="", name="Ann", now=now)
        invitation = find_invitation(connection, token, now=now)
        assert invitation is not None
        person = invitation.person.id
        while task := next_task(connection, campaign, person, now=now):
            shown = select(places.c.token, items.c.role).join(items)
            roles = {row.token: row.role for row in connection.execute(shown)}
            for place in task.places:
                answer = "no" if roles[place.token] == "negative" else "yes"
                answers = {"recognisable": answer, "usable": answer}
                cast(connection, place_token=place.token, person_id=person, key=place.token[:36], answers=answers,
                     seconds=1.0, now=now)  # fmt: skip
            finish(connection, task_token=task.token, person_id=person, now=now)
    server.close()
