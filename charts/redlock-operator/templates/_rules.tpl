{{/* Rights on what lies in namespaces: in those that are followed. */}}
{{- define "redlock-operator.namespacedRules" -}}
# Locks; one is read and patched for its finalizer and to answer a hand-over.
- apiGroups: [redlock.dev]
  resources: [leaderlocks]
  verbs: [get, list, watch, patch]
- apiGroups: [redlock.dev]
  resources: [leaderlocks/status]
  verbs: [patch]
# Where OwnerReferencesPermissionEnforcement is on, an owner reference that blocks deletion needs it.
- apiGroups: [redlock.dev]
  resources: [leaderlocks/finalizers]
  verbs: [update]
{{ include "redlock-operator.eventRules" . }}
{{- $podsGo := false -}}
{{- range include "redlock-operator.targetKinds" . | fromYamlArray }}
{{- if and (not .group) (eq .resource "pods") }}
# Pods of a selector are followed, and one of them is labelled.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
{{- else }}
{{- $podsGo = true }}
{{- if and (eq .group "batch") (has .resource (list "cronjobs" "jobs")) }}
# Targets of this kind are followed and suspended; a CronJob is told before it is resumed that it missed nothing, and what
# it left half-done is deleted.
{{- if eq .resource "cronjobs" }}
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [batch]
  resources: [cronjobs/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, patch, delete]
{{- else }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, patch]
{{- end }}
# A condition Suspended that is older than the last start is removed before a Job is suspended again.
- apiGroups: [batch]
  resources: [jobs/status]
  verbs: [patch]
{{- else }}
# Targets of this kind are followed, scaled by their scale subresource, and what is left of them is deleted in the end.
- apiGroups: [{{ .group | default "" | quote }}]
  resources: [{{ .resource }}]
  verbs: [get, list, watch]
- apiGroups: [{{ .group | default "" | quote }}]
  resources: [{{ .resource }}/scale]
  verbs: [get, patch]
{{- end }}
{{- end }}
{{- end }}
{{- if $podsGo }}
# A target is stopped when its pods are gone.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, delete]
{{- end }}
{{- end -}}

{{- define "redlock-operator.eventRules" -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Rights on what belongs to no namespace. */}}
{{- define "redlock-operator.clusterRules" -}}
# Followed; one is read by the commands that are run in a pod of the operator, such as `redlock doctor`. One that locks name
# is patched for its finalizer.
- apiGroups: [redlock.dev]
  resources: [redisquorums]
  verbs: [get, list, watch, patch]
- apiGroups: [redlock.dev]
  resources: [redisquorums/status]
  verbs: [patch]
# Its uid tells this cluster from every other.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- if .Values.metrics.requireToken }}
# To find the user of a bearer token, and whether that user may get /metrics or /locks.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}

{{/* A Role and its RoleBinding to the operator: (dict "top" $ "name" … "namespace" … "rules" …) */}}
{{- define "redlock-operator.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "redlock-operator.labels" .top | nindent 4 }}
rules:
{{ .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "redlock-operator.labels" .top | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "redlock-operator.serviceAccountName" .top }}
  namespace: {{ .top.Release.Namespace }}
{{- end -}}

{{/* A binding of the hook: (dict "top" $ "kind" … "name" … "namespace" … "annotations" …) */}}
{{- define "redlock-operator.drainBinding" }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "redlock-operator.labels" .top | nindent 4 }}
  annotations:
    {{- toYaml .annotations | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "redlock-operator.fullname" .top }}-drain
  namespace: {{ .top.Release.Namespace }}
{{- end -}}
