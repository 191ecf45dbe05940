"""Which instance a message goes out from."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from accounts.models import Project
from instances.models import DefaultInstance, Instance, InstanceStatus
from messaging.choosing import InstanceRemoved, NoInstance, UnknownInstance, choose_instances
from pilot.errors import PilotError
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return factories.make_project()


def choice(project: Project, name: str = "") -> Instance | PilotError:
    [(what, chosen)] = choose_instances([(project, name)]).items()
    assert what == (project.pk, name)
    return chosen


def refusal(project: Project, name: str = "") -> PilotError:
    refused = choice(project, name)
    assert isinstance(refused, PilotError)
    assert set(refused.fields) == {"instance"}
    return refused


def test_takes_the_one_that_was_asked_for(project: Project) -> None:
    DefaultInstance.objects.create(project=project, instance=factories.make_instance(project.tenant))
    wanted = factories.make_instance(project.tenant, name="loja")
    assert choice(project, "loja") == wanted


def test_falls_back_to_the_default_of_the_project(project: Project) -> None:
    default = factories.make_instance(project.tenant)
    factories.make_instance(project.tenant)
    DefaultInstance.objects.create(project=project, instance=default)
    assert choice(project) == default


@pytest.mark.parametrize("field", ["name", "provider_name"])
def test_falls_back_to_that_of_the_installation(project: Project, settings: Settings, field: str) -> None:
    settings.EVOLUTION_INSTANCE_NAME = "last-resort"
    instance = factories.make_instance(project.tenant, **{field: "last-resort"})
    assert choice(project) == instance


def test_prefers_the_default_of_the_project(project: Project, settings: Settings) -> None:
    settings.EVOLUTION_INSTANCE_NAME = "last-resort"
    factories.make_instance(project.tenant, name="last-resort")
    default = factories.make_instance(project.tenant)
    DefaultInstance.objects.create(project=project, instance=default)
    assert choice(project) == default


def test_takes_an_instance_that_is_closed(project: Project) -> None:
    closed = factories.make_instance(project.tenant, name="loja", status=InstanceStatus.CLOSED)
    assert choice(project, "loja") == closed


def test_refuses_an_unknown_name_even_when_there_is_a_default(project: Project) -> None:
    DefaultInstance.objects.create(project=project, instance=factories.make_instance(project.tenant))
    assert isinstance(refusal(project, "nowhere"), UnknownInstance)


def test_refuses_when_there_is_nothing_to_choose_from(project: Project) -> None:
    factories.make_instance(project.tenant)
    assert isinstance(refusal(project), NoInstance)


def test_never_takes_an_instance_of_another_tenant(project: Project, settings: Settings) -> None:
    settings.EVOLUTION_INSTANCE_NAME = "theirs"
    theirs = factories.make_instance(name="theirs")
    DefaultInstance.objects.create(project=project, instance=theirs)

    assert isinstance(refusal(project, "theirs"), UnknownInstance)
    assert isinstance(refusal(project), NoInstance)


def test_refuses_an_instance_that_was_removed(project: Project) -> None:
    gone = factories.make_instance(project.tenant, name="loja", status=InstanceStatus.REMOVED)
    DefaultInstance.objects.create(project=project, instance=gone)

    assert isinstance(refusal(project, "loja"), InstanceRemoved)
    assert isinstance(refusal(project), InstanceRemoved)


def test_chooses_for_many_projects_at_once(project: Project, settings: Settings) -> None:
    settings.EVOLUTION_INSTANCE_NAME = "last-resort"
    named, default, last = (
        factories.make_instance(project.tenant, name=name) for name in ("loja", "padrao", "last-resort")
    )
    sibling, stranger = factories.make_project(project.tenant), factories.make_project()
    DefaultInstance.objects.create(project=project, instance=default)

    chosen = choose_instances(
        [
            (project, "loja"),
            (project, ""),
            (sibling, "loja"),
            (sibling, ""),
            (stranger, "loja"),
            (stranger, ""),
        ]
    )

    kinds = {what: type(found) if isinstance(found, PilotError) else found for what, found in chosen.items()}
    assert kinds == {
        (project.pk, "loja"): named,
        (project.pk, ""): default,
        (sibling.pk, "loja"): named,
        (sibling.pk, ""): last,
        (stranger.pk, "loja"): UnknownInstance,
        (stranger.pk, ""): NoInstance,
    }
