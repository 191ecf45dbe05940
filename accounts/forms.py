"""Forms about people and tenants."""

from __future__ import annotations

from django import forms
from unfold.forms import UserChangeForm, UserCreationForm

from accounts.models import User


class TenantChoice(forms.Form):
    tenant = forms.IntegerField()


class NewUserForm(UserCreationForm):
    """Staff make a person: an e-mail address and a first password."""

    class Meta:
        model = User
        fields = ("email", "name")


class UserForm(UserChangeForm):
    class Meta:
        model = User
        fields = "__all__"
