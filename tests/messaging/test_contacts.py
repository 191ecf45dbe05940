"""Files of people, beside others who write the same rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import Tenant
from messaging import contacts
from messaging.models import Contact
from tests import factories
from tests.waits import until_somebody_waits

ANA, BIA = "+5511999990000", "+5511999990001"


@pytest.mark.django_db(transaction=True)
def test_does_not_deadlock_with_people_who_write_meanwhile(transactional_db: None) -> None:
    """Known people and new ones in one order, as news of them takes them."""
    tenant = factories.make_tenant()
    Contact.objects.create(tenant=tenant, number=ANA)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Contact.objects.filter(number=ANA).update(recipient_id="1")
            imported = pool.submit(_import, tenant, f"number,name\n{ANA},Ana\n{BIA},\n".encode())
            until_somebody_waits()
            Contact.objects.create(tenant=tenant, number=BIA, name="Bia")
        assert imported.result(timeout=10) == 2
    assert list(Contact.objects.order_by("number").values_list("name", "recipient_id")) == [
        ("Ana", "1"),
        ("Bia", ""),
    ]


def _import(tenant: Tenant, raw: bytes) -> int:
    try:
        return contacts.import_file(raw, tenant=tenant, now=timezone.now()).taken
    finally:
        connection.close()
